"""Threads of the linear algebra library, set inside the jail for runs that may have some.

The zygote starts it with one thread (a pool does not survive a fork), finds the setter
while files can still be opened, and the child calls it once the filter is closed.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable

__all__ = ["find_thread_setters"]

_NAMES = (
    "scipy_openblas_set_num_threads64_",
    "scipy_openblas_set_num_threads",
    "openblas_set_num_threads64_",
    "openblas_set_num_threads",
)


def find_thread_setters() -> tuple[Callable[[int], object], ...]:
    """Return the functions that set the thread count of each loaded OpenBLAS."""
    with open("/proc/self/maps", encoding="utf-8") as lines:  # noqa: PTH123 - pathlib would cost every cold start 3 ms
        paths = {line.split()[-1] for line in lines if "openblas" in line}
    setters: list[Callable[[int], object]] = []
    for path in sorted(paths):
        library = ctypes.CDLL(path)
        setters += [
            getattr(library, name) for name in _NAMES if hasattr(library, name)
        ][:1]
    return tuple(setters)
