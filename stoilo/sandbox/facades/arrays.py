"""`numpy`: no uninitialised memory, no raw array constructor."""

from __future__ import annotations

from types import GenericAlias
from typing import Any, NoReturn, TypeVar

import numpy as np
from numpy.lib import _index_tricks_impl

from stoilo.core.levels import Level
from stoilo.sandbox.facades.array_files import file_functions
from stoilo.sandbox.facades.array_iteration import nditer
from stoilo.sandbox.facades.array_memory import call_zeroed, seal_exports
from stoilo.sandbox.facades.array_records import RecarrayStandIn
from stoilo.sandbox.facades.array_text import text_functions
from stoilo.sandbox.language.refusals import GuardError
from stoilo.sandbox.language.stand_ins import StandIn

__all__ = ["build"]


class NdarrayStandIn(metaclass=StandIn):
    """Stands for ``numpy.ndarray`` in annotations and ``isinstance``."""

    __stoilo_real__ = np.ndarray

    def __new__(cls, *_args: Any, **_kwargs: Any) -> Any:
        """Refuse: the raw constructor shows whatever lies in memory."""
        raise TypeError("numpy.ndarray() makes no arrays in a task: use numpy.zeros")

    def __class_getitem__(cls, item: object) -> object:
        return GenericAlias(cls, item)  # calling an alias calls its origin


class MatrixStandIn(metaclass=StandIn):
    """Stands for ``numpy.matrix``, which a task cannot extend."""

    __stoilo_real__ = np.matrix

    def __new__(cls, *args: Any, **options: Any) -> Any:
        """Return a real one."""
        return np.matrix(*args, **options)


def empty(shape: Any, dtype: Any = float, order: Any = "C", **options: Any) -> Any:
    """Return zeros: what lies in free memory differs between honest copies."""
    return np.zeros(shape, dtype, order, **options)


def pad(array: Any, pad_width: Any, mode: Any = "constant", **options: Any) -> Any:
    """``numpy.pad``; the mode ``"empty"`` pads with zeros."""
    return call_zeroed(np.pad, array, pad_width, mode, **options)


def empty_like(prototype: Any, dtype: Any = None, **options: Any) -> Any:
    """Return zeros of the prototype's shape."""
    return np.zeros_like(prototype, dtype, **options)


def _no_variables(*_values: object) -> NoReturn:
    """Stand for ``bmat``, which would look up ``np.r_["name"]`` in whoever called."""
    raise GuardError("STO-G101", "numpy.r_ and c_ read no variables by their names")


ARRAY_ALIAS = GenericAlias(
    NdarrayStandIn,
    (tuple[Any, ...], np.dtype[TypeVar("ScalarT", bound=np.generic)]),  # type: ignore[misc]  # a value here
)
"""``numpy.typing.NDArray`` whose call reaches no raw constructor."""


def build(level: Level) -> dict[str, object]:
    """Return the replacements."""
    del level
    NdarrayStandIn.__name__ = NdarrayStandIn.__qualname__ = "ndarray"
    NdarrayStandIn.__module__ = "numpy"
    MatrixStandIn.__name__ = MatrixStandIn.__qualname__ = "matrix"
    MatrixStandIn.__module__ = "numpy"
    seal_exports()
    indexing: Any = _index_tricks_impl.AxisConcatenator
    indexing.makemat = staticmethod(MatrixStandIn)  # ``np.c_.makemat``
    _index_tricks_impl.__dict__["matrixlib"].bmat = _no_variables
    return {
        "empty": empty,
        "empty_like": empty_like,
        "matrix": MatrixStandIn,
        "ndarray": NdarrayStandIn,
        "nditer": nditer,
        "pad": pad,
        "recarray": RecarrayStandIn,
        **file_functions(),
        **text_functions(),
    }
