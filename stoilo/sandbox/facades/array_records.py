"""`numpy.rec` and record functions: records from data, never from a file or raw memory."""

from __future__ import annotations

import importlib
from typing import Any

import numpy as np

from stoilo.core.levels import Level
from stoilo.sandbox.language.stand_ins import StandIn

__all__ = ["RecarrayStandIn", "build"]


class RecarrayStandIn(metaclass=StandIn):
    """Stands for ``numpy.recarray`` in ``isinstance``."""

    __stoilo_real__ = np.recarray

    def __new__(cls, *_args: Any, **_options: Any) -> Any:
        """Refuse: the raw constructor shows whatever lies in memory."""
        raise TypeError("numpy.recarray() makes no arrays in a task: use numpy.rec")


def array(obj: Any, *args: Any, **options: Any) -> Any:
    """``numpy.rec.array`` of data: sequences and arrays.

    Bytes are refused: numpy takes those of forged objects too, and reads through them.
    """
    if obj is None or hasattr(obj, "readinto") or hasattr(obj, "__fspath__"):
        raise TypeError("numpy.rec.array() reads no files in a task")
    if isinstance(obj, bytes | bytearray | memoryview):
        raise TypeError("make records of bytes with numpy.frombuffer() in a task")
    return np.rec.array(obj, *args, **options)


def build(level: Level) -> dict[str, object]:
    """Return the replacements."""
    del level
    importlib.import_module("numpy.lib.recfunctions")
    RecarrayStandIn.__name__ = RecarrayStandIn.__qualname__ = "recarray"
    RecarrayStandIn.__module__ = "numpy"
    return {"array": array, "recarray": RecarrayStandIn}
