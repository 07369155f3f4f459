"""Pillow's images as nodes: mode, size, pixels, palette. Formats, frames, metadata stay.

    {"mode": "P", "size": (3, 2), "data": bytes, "palette": bytes, "transparency": 0}

Pixels are as `Image.tobytes` packs them. An image that was opened arrives as a plain
`PIL.Image.Image`. Trust: nodes are hostile; nothing is made before every size fits.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable
from typing import Any

from stoilo.core.codec.nodes import Instance, Node
from stoilo.core.errors import TrustError, UsageError

_NAME = "PIL.Image.Image"
_MOST_PIXELS = 89_478_485  # what Pillow itself takes without a warning
_MOST_COLOURS = 256
_BITS = {
    "1": 1,
    **dict.fromkeys(("L", "P"), 8),
    **dict.fromkeys(("LA", "PA", "I;16"), 16),
    **dict.fromkeys(("RGB", "YCbCr", "LAB", "HSV"), 24),
    **dict.fromkeys(("RGBA", "RGBX", "CMYK", "I", "F"), 32),
}
"""Mode → bits of a pixel; rows of mode 1 end at a whole byte."""


def to_node(value: Any, name: str, convert: Callable[[object], Node]) -> Instance:  # noqa: ANN401
    """Return the node of an image, or raise ``STO-D001`` for a mode that is not above."""
    del name
    if value.mode not in _BITS:
        message = f"images of mode {value.mode!r:.16} do not travel"
        raise UsageError("STO-D001", message, hint='send image.convert("RGBA")')
    palette = value.getpalette("RGB") if value.mode in {"P", "PA"} else None
    state = {
        "mode": value.mode,
        "size": tuple(value.size),
        "data": value.tobytes(),
        "palette": None if palette is None else bytes(palette),
        "transparency": value.info.get("transparency"),
    }
    return Instance(_NAME, {key: convert(one) for key, one in state.items()})


def from_node(node: Instance, convert: Callable[[Node], object]) -> object:
    """Return the image of `node` (hostile), or raise ``STO-D002``."""
    state: dict[str, Any] = {key: convert(one) for key, one in node.state.items()}
    misfit = TrustError("STO-D002", "an image's mode, size and pixels do not fit")
    if node.class_name != _NAME or node.base is not None or not _is_sound(state):
        raise misfit
    try:
        return _make(state)
    except (OverflowError, TypeError, ValueError):
        raise misfit from None


def _make(state: dict[str, Any]) -> object:
    library = importlib.import_module("PIL.Image")
    image = library.frombytes(state["mode"], state["size"], bytes(state["data"]))
    if state["palette"] is not None:
        image.putpalette(bytes(state["palette"]), "RGB")
    if state["transparency"] is not None:
        image.info["transparency"] = state["transparency"]
    return image


def _is_sound(state: dict[str, Any]) -> bool:
    if state.keys() != {"mode", "size", "data", "palette", "transparency"}:
        return False
    mode, size, data = state["mode"], state["size"], state["data"]
    if type(mode) is not str or mode not in _BITS or not _is_size(size):
        return False
    width, height = size
    row = (width * _BITS[mode] + 7) // 8
    fits = isinstance(data, bytes | memoryview) and len(data) == row * height
    return (
        fits
        and _is_palette(state["palette"], mode)
        and _is_clear(state["transparency"])
    )


def _is_size(size: Any) -> bool:  # noqa: ANN401
    if type(size) is not tuple or [type(one) for one in size] != [int, int]:
        return False
    return bool(min(size) >= 0 and size[0] * size[1] <= _MOST_PIXELS >= max(size))


def _is_palette(palette: Any, mode: str) -> bool:  # noqa: ANN401
    if palette is None:
        return True
    whole = isinstance(palette, bytes | memoryview) and len(palette) % 3 == 0
    fits = whole and len(palette) <= 3 * _MOST_COLOURS
    return fits and mode in {"P", "PA"}


def _is_clear(value: Any) -> bool:  # noqa: ANN401
    """Whether `value` is a transparent colour: its number, its parts, or one a colour."""
    if value is None or type(value) is int:
        return True
    if type(value) is tuple:
        return len(value) <= 4 and all(type(one) is int for one in value)  # noqa: PLR2004
    return isinstance(value, bytes | memoryview) and len(value) <= _MOST_COLOURS
