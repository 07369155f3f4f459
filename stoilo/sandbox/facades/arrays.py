"""`numpy`: no uninitialised memory, no raw array constructor."""

from __future__ import annotations

import importlib
from types import GenericAlias
from typing import Any, TypeVar

import numpy as np

from stoilo.core.levels import Level
from stoilo.sandbox.facades.stand_in import StandIn

__all__ = ["build"]


LOADED_LATE = (
    *("inspect", "numpy._core._dtype", "numpy._core._internal", "numpy._core._methods"),
    *("numpy.char", "numpy.dtypes", "numpy.ma", "numpy.rec", "numpy.strings"),
)
"""What numpy imports at first use, which is too late in a jail."""


class NdarrayStandIn(metaclass=StandIn):
    """Stands for ``numpy.ndarray`` in annotations and ``isinstance``."""

    __stoilo_real__ = np.ndarray

    def __new__(cls, *_args: Any, **_kwargs: Any) -> Any:  # noqa: ANN401
        """Refuse: the raw constructor shows whatever lies in memory."""
        raise TypeError("numpy.ndarray() makes no arrays in a task: use numpy.zeros")

    def __class_getitem__(cls, item: object) -> object:
        return GenericAlias(cls, item)  # calling an alias calls its origin


def empty(shape: Any, dtype: Any = float, order: Any = "C", **options: Any) -> Any:  # noqa: ANN401
    """Return zeros: what lies in free memory differs between honest copies."""
    return np.zeros(shape, dtype, order, **options)


def empty_like(prototype: Any, dtype: Any = None, **options: Any) -> Any:  # noqa: ANN401
    """Return zeros of the prototype's shape."""
    return np.zeros_like(prototype, dtype, **options)


ARRAY_ALIAS = GenericAlias(
    NdarrayStandIn,
    (tuple[Any, ...], np.dtype[TypeVar("ScalarT", bound=np.generic)]),  # type: ignore[misc]  # a value here
)
"""``numpy.typing.NDArray`` whose call reaches no raw constructor."""


def build(level: Level) -> dict[str, object]:
    """Return the replacements."""
    del level
    for name in LOADED_LATE:
        importlib.import_module(name)
    NdarrayStandIn.__name__ = NdarrayStandIn.__qualname__ = "ndarray"
    NdarrayStandIn.__module__ = "numpy"
    return {"empty": empty, "empty_like": empty_like, "ndarray": NdarrayStandIn}
