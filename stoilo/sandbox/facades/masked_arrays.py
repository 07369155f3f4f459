"""`numpy.ma`: nothing uninitialised, no addresses, no way to the raw constructor."""

from __future__ import annotations

from typing import Any

import numpy as np

from stoilo.core.levels import Level
from stoilo.sandbox.facades.array_memory import call_zeroed
from stoilo.sandbox.facades.arrays import NdarrayStandIn
from stoilo.sandbox.language.stand_ins import StandIn

__all__ = ["build"]

_UNINITIALISED = ("empty", "empty_like", "masked_all", "masked_all_like")
_REAL: Any = np.ma.MaskedArray


class MaskedArray(metaclass=StandIn):
    """Stands for ``numpy.ma.MaskedArray``."""

    __stoilo_real__ = _REAL

    def __new__(cls, *args: Any, **options: Any) -> Any:
        """Return a real one."""
        return _REAL(*args, **options)


def _zeroed(name: str) -> Any:
    real = getattr(np.ma, name)

    def function(*args: Any, **options: Any) -> Any:
        return call_zeroed(real, *args, **options)

    function.__name__ = function.__qualname__ = name
    return function


def _close_attributes() -> None:
    """Take back what instances show: addresses, and the class behind ``numpy.ndarray``."""
    if hasattr(_REAL, "ids"):
        del _REAL.ids
    _REAL.baseclass = property(lambda _self: NdarrayStandIn)


def build(level: Level) -> dict[str, object]:
    """Return the replacements."""
    del level
    _close_attributes()
    MaskedArray.__module__ = "numpy.ma"
    return {
        **{name: _zeroed(name) for name in _UNINITIALISED},
        "MaskedArray": MaskedArray,
        "masked_array": MaskedArray,
    }
