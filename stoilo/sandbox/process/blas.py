"""Threads of the linear algebra libraries, set inside the jail for runs that may have some.

The zygote starts it with one thread (a pool does not survive a fork), finds the setter
while files can still be opened, and the child calls it once the filter is closed.
"""

from __future__ import annotations

import ctypes
import os
import sys
from collections.abc import Callable

__all__ = ["find_thread_setters", "mapped_files"]

_NAMES = (
    "scipy_openblas_set_num_threads64_",
    "scipy_openblas_set_num_threads",
    "openblas_set_num_threads64_",
    "openblas_set_num_threads",
)


def mapped_files(maps: bytes) -> frozenset[str]:
    r"""Return the files in the text of ``/proc/PID/maps``; their paths may hold spaces.

    Source: proc_pid_maps(5): address, perms, offset, dev, inode, then the path as it is,
    only a newline in it written as ``\012``.
    """
    fields = (line.split(maxsplit=5) for line in maps.split(b"\n"))
    paths = (parts[5] for parts in fields if len(parts) > 5)  # noqa: PLR2004  # as above
    return frozenset(
        os.fsdecode(path.replace(b"\\012", b"\n"))
        for path in paths
        if path.startswith(b"/")
    )


def find_thread_setters() -> tuple[Callable[[int], object], ...]:
    """Return what sets the thread count of each loaded OpenBLAS, and of torch."""
    with open("/proc/self/maps", "rb") as lines:  # noqa: PTH123 - pathlib would cost every cold start 3 ms
        mapped = mapped_files(lines.read())
    setters: list[Callable[[int], object]] = []
    for path in sorted(
        path for path in mapped if "openblas" in path.rpartition("/")[2]
    ):
        library = ctypes.CDLL(path)
        setters += [
            getattr(library, name) for name in _NAMES if hasattr(library, name)
        ][:1]
    torch = sys.modules.get("torch")
    return (*setters, torch.set_num_threads) if torch else tuple(setters)
