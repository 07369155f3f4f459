"""Who computes with torch in this process: one at a time.

The process has one generator of random numbers, which kernels seed and put back; threads
side by side would draw from each other's.
"""

from __future__ import annotations

import contextlib
import threading
from contextlib import AbstractContextManager

__all__ = ["take_turn"]

_TORCH = threading.RLock()


def take_turn(level: str) -> AbstractContextManager[object]:
    """Return what is held while a kernel of that level runs here."""
    return _TORCH if level == "tensor" else contextlib.nullcontext()
