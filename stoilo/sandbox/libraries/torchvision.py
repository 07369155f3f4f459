"""`torchvision`: models without downloads, images that stay data, no files.

Imported by a zygote before anything else of torchvision. Images of PIL come out of datasets
and transforms also where a task may not import PIL; then they keep the few names below.
"""

from __future__ import annotations

import fnmatch
import importlib
import sys
from collections.abc import Callable, Iterable
from types import ModuleType
from typing import Any

import numpy as np
import torch
from PIL import Image

from stoilo.core.levels import Level
from stoilo.sandbox.facades.tensor_members import prepare_torch
from stoilo.sandbox.facades.tensors import manual_seed
from stoilo.sandbox.language.rules import GuardError
from stoilo.sandbox.language.substitutes import by_name
from stoilo.sandbox.libraries.packages import ABSENT, Inner
from stoilo.sandbox.libraries.torchvision_import import import_torchvision


def _prepare() -> ModuleType:
    # With torch as tasks have it: the real compiler would bring a thousand modules
    prepare_torch()
    helpers = ModuleType("torch._dynamo.utils")
    helpers.is_compile_supported = bool  # type: ignore[attr-defined]  # a module made here
    sys.modules[helpers.__name__] = helpers
    sys.modules["torch._dynamo"].utils = helpers  # type: ignore[attr-defined]  # likewise
    return import_torchvision()


_torchvision = _prepare()


# Models: built, never loaded ------------------------------------------------------------

_WEIGHTS = ("weights", "weights_backbone", "pretrained", "pretrained_backbone")


def _without_weights(build: Callable[..., Any]) -> Callable[..., Any]:
    """Return a model's function that takes no weights: they would be downloaded."""

    def make(*weights: Any, **options: Any) -> Any:
        asked = [*weights[:1], *(options.get(name) for name in _WEIGHTS)]
        if any(one is not None and one is not False for one in asked):
            raise GuardError(
                "STO-G102",
                f"{build.__name__}() downloads no weights in a task: weights=None",
                hint="send a state_dict() as an argument and load_state_dict() it here",
            )
        return build(*weights, **options)

    make.__name__ = make.__qualname__ = build.__name__
    make.__module__ = "torchvision.models"
    return make


def _builders(dotted: str, names: Iterable[str]) -> dict[str, object]:
    module = importlib.import_module(dotted)
    found = {name: getattr(module, name, None) for name in names}
    return {
        name: _without_weights(value)
        for name, value in found.items()
        if callable(value) and not isinstance(value, type)
    }


def _build_models(level: Level) -> dict[str, object]:
    made = _builders("torchvision.models", level.modules["torchvision.models"].names)
    del made["get_model"], made["list_models"]

    def list_models(include: str = "*") -> list[str]:
        return sorted(fnmatch.filter(made, include))

    def get_model(name: str, **options: Any) -> Any:
        found: Any = made.get(str.lower(name))
        if found is None:
            raise ValueError(f"there is no model {name[:64]!r} at this level")
        return found(**options)

    return made | by_name(get_model, list_models)


def _build_part(dotted: str) -> Callable[[Level], dict[str, object]]:
    return lambda level: _builders(dotted, level.modules[dotted].names)


# Images of PIL ---------------------------------------------------------------------------

_IMAGE_NAMES = frozenset(
    {"convert", "copy", "crop", "getbands", "getextrema", "getpixel", "height", "mode"}
    | {"resize", "size", "split", "transpose", "width"}
)
"""What tasks see of an image where PIL itself is not theirs to import."""


_PIXELS = (
    "PIL.",
    "torchvision.transforms._functional_pil",
    "torchvision.transforms.functional",
    "torchvision.transforms.v2.functional.",
)
"""Modules that work on pixels; none of their functions calls what a task hands over."""


def _close_images(level: Level) -> None:
    if "PIL.Image" in level.modules:
        return  # the library's own file says what is closed
    names = {name for name in dir(Image.Image) if not name.startswith("_")}
    names |= {"info", "palette"}  # of instances
    for name in names - _IMAGE_NAMES:
        member = vars(Image.Image).get(name, ABSENT)
        if not isinstance(member, Inner):  # built before in this process
            setattr(Image.Image, name, Inner(name, member, _PIXELS))


def to_image(inpt: Any) -> torch.Tensor:
    """Return an image as a plain tensor: classes of images do not exist in a task."""
    if isinstance(inpt, np.ndarray):
        return torch.from_numpy(np.atleast_3d(inpt)).permute(2, 0, 1).contiguous()
    if isinstance(inpt, torch.Tensor):
        return inpt if inpt.ndim > 2 else inpt.unsqueeze(0)  # noqa: PLR2004 - one channel
    made: torch.Tensor = _functional().pil_to_tensor(inpt)
    return made


def _functional() -> Any:
    return importlib.import_module("torchvision.transforms.v2.functional")


def _build_functional(_level: Level) -> dict[str, object]:
    _functional().to_image = to_image  # where `ToImage` finds it
    return by_name(to_image)


def _build_root(level: Level) -> dict[str, object]:
    _close_images(level)
    torch.manual_seed = (
        manual_seed  # made-up data seeds each image: without other devices
    )
    return {"__version__": _torchvision.__version__.partition("+")[0]}


_PARTS = (
    *("alexnet", "convnext", "densenet", "efficientnet", "googlenet", "inception"),
    *("maxvit", "mnasnet", "mobilenetv2", "mobilenetv3", "regnet", "resnet", "vgg"),
    *("shufflenetv2", "squeezenet", "swin_transformer", "vision_transformer"),
)

FACADES: dict[str, object] = {
    "torchvision": _build_root,
    "torchvision.models": _build_models,
    "torchvision.transforms.v2.functional": _build_functional,
    **{
        f"torchvision.models.{part}": _build_part(f"torchvision.models.{part}")
        for part in _PARTS
    },
}
