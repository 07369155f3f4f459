"""What the server's process asks of its system once: memory given back, files allowed."""

from __future__ import annotations

import ctypes
import gc
import logging
import resource
from typing import Final

LOGGER = logging.getLogger(__name__)
M_TRIM_THRESHOLD: Final = -1
M_MMAP_THRESHOLD: Final = -3
LARGE_BYTES: Final = 1024 * 1024
OPEN_FILES: Final = 8192
"""More than all connections of both interfaces together, and the databases' files."""


def give_large_blocks_back() -> bool:
    """Give every block of a MiB or more pages of its own from now on.

    Returns whether the C library could be told; another than glibc cannot, and needs not.
    """
    # glibc raises by itself the size from which a block has pages of its own, to 32 MiB
    # once one of that size was freed. From then on messages and results lie between small
    # blocks that stay, and what is freed between them is not given back.
    set_option = getattr(ctypes.CDLL(None), "mallopt", None)
    if set_option is None:
        LOGGER.info("the C library has no mallopt: memory is given back as it likes")
        return False
    mapped = set_option(M_MMAP_THRESHOLD, LARGE_BYTES)
    trimmed = set_option(M_TRIM_THRESHOLD, LARGE_BYTES)
    return bool(mapped and trimmed)


def allow_open_files() -> None:
    """Let this process have as many open files as its connections may need."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = OPEN_FILES if hard == resource.RLIM_INFINITY else min(OPEN_FILES, hard)
    if soft != resource.RLIM_INFINITY and soft < wanted:
        resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))


def settle_collector() -> None:
    """Have Python's collector leave out what is there: it stays until the end anyway."""
    # A full collection holds up every thread, 100 ms and more for what a start has made.
    gc.collect()
    gc.freeze()
