"""Unix socket addresses of any length: the kernel's own limit is 107 bytes."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

__all__ = ["unix_address"]

MAX_ADDRESS_BYTES = 107


@contextmanager
def unix_address(path: Path) -> Iterator[str]:
    """Yield an address for `path`, by way of its directory's descriptor when long."""
    if len(os.fsencode(path)) <= MAX_ADDRESS_BYTES:
        yield str(path)
        return
    folder = os.open(path.parent, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        yield f"/proc/self/fd/{folder}/{path.name}"
    finally:
        os.close(folder)
