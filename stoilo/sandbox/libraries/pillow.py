"""`PIL`: images from bytes and to bytes; no files, no viewers, no raw access to pixels.

Behind every image stands an object of C's that believes who calls it. PIL's own code needs
it, and other public names that no task may use; so those answer code of PIL's only. What a
task hands over is made steady first: C reads lists while code of the task could change
them, and takes any object for an image whose attributes it then trusts.
"""

from __future__ import annotations

import functools
import importlib
import io
from collections.abc import Callable, Iterable
from types import FunctionType
from typing import Any, NoReturn

from stoilo.core.levels import Level
from stoilo.sandbox.language.hardening import exact_float, exact_text
from stoilo.sandbox.language.ownership import class_dict, class_mro, is_own_class
from stoilo.sandbox.language.rules import GuardError
from stoilo.sandbox.libraries.packages import (
    ABSENT,
    Inner,
    bind_classes,
    shut_builtins,
)

_OWN_CODE = ("PIL.",)

FORMATS = ("BMP", "GIF", "JPEG", "PNG", "PPM", "TIFF", "WEBP")
"""What is decoded and encoded, by PIL's names."""

_PLUGINS = ("Bmp", "Gif", "Jpeg", "Png", "Ppm", "Tiff", "WebP")
_FULLY_LOADED = 2  # what `Image._initialized` is after `Image.init`

_IMAGE = frozenset(
    {"alpha_composite", "apply_transparency", "close", "convert", "copy", "crop"}
    | {"draft", "effect_spread", "entropy", "filter", "format", "format_description"}
    | {"frombytes", "get_flattened_data", "getbands", "getbbox", "getchannel"}
    | {"getcolors", "getdata", "getexif", "getextrema", "getpalette", "getpixel"}
    | {"getprojection", "has_transparency_data", "height", "histogram", "info"}
    | {"is_animated", "load", "mode", "n_frames", "palette", "paste", "point"}
    | {"putalpha", "putdata", "putpalette", "putpixel", "quantize", "reduce"}
    | {"remap_palette", "resize", "rotate", "save", "seek", "size", "split", "tell"}
    | {"text", "thumbnail", "tobitmap", "tobytes", "transform", "transpose", "verify"}
    | {"width"}
)
_DRAW = frozenset(
    {"arc", "bitmap", "chord", "circle", "ellipse", "line", "mode", "multiline_text"}
    | {"multiline_textbbox", "pieslice", "point", "polygon", "rectangle"}
    | {"regular_polygon", "rounded_rectangle", "text", "textbbox", "textlength"}
)
_FONT = frozenset({"getbbox", "getlength", "getmetrics", "getname"})
_PALETTE = frozenset({"colors", "getcolor", "getdata", "mode", "palette", "tobytes"})


def _refuse(message: str) -> NoReturn:
    raise GuardError("STO-G108", message, hint="use bytes, io.BytesIO() and numbers")


def steady(value: Any) -> Any:
    """Return `value` with nothing in it that can change or convert itself while C reads."""
    if isinstance(value, list | tuple):
        return tuple(map(steady, value))
    if isinstance(value, dict):
        return {steady(key): steady(one) for key, one in value.items()}
    if not is_own_class(type(value)):
        return value
    plain = exact_text(exact_float(value))
    if is_own_class(type(plain)):
        _refuse(f"PIL takes no {type(value).__name__:.64}")
    return plain


def _steadied(function: Callable[..., Any], skip: int) -> Callable[..., Any]:
    """Return `function` that gets its arguments, after `skip` of them, steady."""

    @functools.wraps(function)
    def call(*args: Any, **options: Any) -> Any:
        given = (*args[:skip], *map(steady, args[skip:]))
        return function(*given, **{name: steady(one) for name, one in options.items()})

    return call


def _stored_on_self(cls: type) -> Iterable[str]:
    """Yield the public names that methods of `cls` store, or delete, on instances."""
    import dis  # noqa: PLC0415 - in the zygote only

    for member in class_dict(cls).values():
        code = getattr(getattr(member, "fget", member), "__code__", None)
        for step in dis.get_instructions(code) if code else ():
            if step.opname in {"STORE_ATTR", "DELETE_ATTR"}:
                yield step.argval


def _is_public(name: str) -> bool:
    return not name.startswith("_")


@functools.cache
def _public_names(cls: type) -> frozenset[str]:
    """Return the public names of `cls` itself and of what its methods store."""
    return frozenset(filter(_is_public, {*class_dict(cls), *_stored_on_self(cls)}))


def _narrow(cls: type, kept: frozenset[str]) -> None:
    """Leave the public names `kept` of `cls` to tasks, its methods with steady arguments.

    What a base has too is the base's to close.
    """
    own = dict(class_dict(cls))
    above = {name for base in class_mro(cls)[1:] for name in _public_names(base)}
    names = {*filter(_is_public, own), *(_public_names(cls) - above)}
    for name in names - kept:
        setattr(cls, name, Inner(name, own.get(name, ABSENT), _OWN_CODE))
    for name in {*(names & kept), "__init__"} & own.keys():
        if isinstance(own[name], FunctionType):
            setattr(cls, name, _steadied(own[name], 1))


def _module(name: str) -> Any:
    return importlib.import_module(f"PIL.{name}")


_prepared: list[str] = []


def _prepare() -> None:
    """Load the formats, close the classes; once a process."""
    if _prepared:
        return
    _prepared.append("PIL")
    image, files = _module("Image"), _module("ImageFile")
    plugins = [_module(f"{name}ImagePlugin") for name in _PLUGINS]
    image._initialized = _FULLY_LOADED  # noqa: SLF001 - as after init()
    _exchange(image.Image)
    _mend_truth(image.Image)
    kinds = {files.ImageFile, image.Image} | {
        value
        for plugin in plugins
        for value in vars(plugin).values()
        if isinstance(value, type) and issubclass(value, image.Image)
    }
    for kind in kinds:
        _narrow(kind, _IMAGE)
    _narrow(_module("ImageDraw").ImageDraw, _DRAW)
    _narrow(_module("ImagePalette").ImagePalette, _PALETTE)
    fonts = _module("ImageFont")
    for kind in (fonts.ImageFont, fonts.FreeTypeFont, fonts.TransposedFont):
        _narrow(kind, _FONT)
    for kind in vars(_module("ImageFilter")).values():
        if isinstance(kind, type) and kind.__module__ == "PIL.ImageFilter":
            _narrow(kind, frozenset({"generate", "name"}))
    for name in ("ImageEnhance", "ImageSequence", "ImageStat"):
        for kind in vars(_module(name)).values():
            if isinstance(kind, type) and "__init__" in class_dict(kind):
                kind.__init__ = _steadied(kind.__init__, 1)  # type: ignore[misc]  # found at run time
    shut_builtins("PIL")
    bind_classes("PIL")


# Methods of images that take a task's objects, or give away C's


def _memory(file: Any) -> Any:
    if type(file) is not io.BytesIO:
        _refuse("a task has no files: use an io.BytesIO()")
    return file


def _format(name: Any) -> str:
    if type(name) is not str or name.upper() not in FORMATS:
        _refuse(f"images are {', '.join(FORMATS)} in a task: say which")
    return name.upper()


def _exchange(cls: Any) -> None:
    save, tobytes, frombytes, change = cls.save, cls.tobytes, cls.frombytes, cls.filter

    def save_image(self: Any, fp: Any, format: Any = None, **params: Any) -> None:  # noqa: A002
        save(self, _memory(fp), _format(format), **params)

    def to_bytes(self: Any, encoder_name: Any = "raw", *args: Any) -> Any:
        return tobytes(self, _raw(encoder_name), *args)

    def from_bytes(self: Any, data: Any, decoder_name: Any = "raw", *args: Any) -> None:
        frombytes(self, bytes(data), _raw(decoder_name), *args)

    def filtered(self: Any, filter: Any) -> Any:  # noqa: A002
        kind = filter if isinstance(filter, type) else type(filter)
        if kind.__module__ != "PIL.ImageFilter":
            _refuse("the filters are those of PIL.ImageFilter")
        return change(self, filter)

    def data(self: Any, band: Any = None) -> Any:
        return self.get_flattened_data(band)

    made: dict[str, Any] = {
        "save": save_image,
        "tobytes": to_bytes,
        "frombytes": from_bytes,
    }
    made |= {"filter": filtered, "getdata": data}
    for name, method in made.items():
        setattr(cls, name, functools.wraps(getattr(cls, name))(method))


_TRUTH = bytes([0] + [1] * 255)


def _mend_truth(cls: Any) -> None:
    # PIL shows true pixels as 255 where numpy's booleans are 0 and 1
    show = cls.__array_interface__.fget

    def interface(self: Any) -> Any:
        shown = show(self)
        if self.mode == "1":
            shown["data"] = shown["data"].translate(_TRUTH)
        return shown

    cls.__array_interface__ = property(interface)


def _raw(name: Any) -> str:
    # Other codecs take numbers from a task that C then believes
    if name != "raw":
        _refuse("pixels are packed 'raw' in a task; open() and save() know formats")
    return "raw"


# What a task gets ----------------------------------------------------------------------


def _open_image(fp: Any, mode: Any = "r", formats: Any = None) -> Any:
    """``PIL.Image.open`` of an `io.BytesIO` with an image in one of `FORMATS`."""
    wanted = FORMATS if formats is None else tuple(map(_format, formats))
    return _module("Image").open(_memory(fp), mode, wanted)


def _from_bytes(
    mode: Any, size: Any, data: Any, decoder: Any = "raw", *args: Any
) -> Any:
    """``PIL.Image.frombytes`` and ``frombuffer``, which copies here."""
    given = steady((mode, size, bytes(data), _raw(decoder), *args))
    return _module("Image").frombytes(*given)


def _load_default(size: float | None = None) -> Any:
    return _module("ImageFont").load_default(size)


def _build(name: str, level: Level) -> dict[str, object]:
    _prepare()
    real = _module(name)
    found = {
        one: getattr(real, one, None) for one in level.modules[f"PIL.{name}"].names
    }
    made: dict[str, object] = {
        one: _steadied(value, 0)
        for one, value in found.items()
        if isinstance(value, FunctionType)
    }
    return made | _OWN.get(name, {})


_OWN: dict[str, dict[str, object]] = {
    "Image": {"open": _open_image, "frombytes": _from_bytes, "frombuffer": _from_bytes},
    "ImageFont": {"load_default": _load_default},
}
_MODULES = (
    *("Image", "ImageChops", "ImageColor", "ImageDraw", "ImageEnhance", "ImageFilter"),
    *("ImageFont", "ImageOps", "ImageSequence", "ImageStat", "PngImagePlugin"),
)

FACADES: dict[str, object] = {
    f"PIL.{name}": functools.partial(_build, name) for name in _MODULES
}
