"""Downloading from mirrors first: whatever they do, the project's own server is left.

A mirror is believed in nothing. What it sends counts only when the whole file has the
right SHA-256; one that is dead, says no, is slow or sends other bytes is passed over, and
its bytes are thrown away where they do not add up.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import msgspec

from stoilo.core.errors import TrustError, UnreachableError
from stoilo.executor.ledger import FileRecord

__all__ = ["download_from_any"]

Fetch = Callable[[FileRecord, Path], None]
"""Brings a file from its `url` to a part: checked and whole, or one of our errors."""


def download_from_any(
    file: FileRecord, part: Path, fetch: Fetch, from_mirror: Fetch
) -> None:
    """Bring a file to `part` from the first of its mirrors or the project that has it.

    Args:
        file: with its mirrors.
        part: resumed where a part of it is there.
        fetch: from the project.
        from_mirror: from a mirror.

    Raises:
        StoiloError: whatever `fetch` raises in the end.
    """
    for url in file.mirrors:
        try:
            from_mirror(msgspec.structs.replace(file, url=url), part)
        except TrustError:
            part.unlink(missing_ok=True)
        except UnreachableError:
            continue
        else:
            return
    resumed = part.exists()
    try:
        fetch(file, part)
    except TrustError:
        if not (resumed and file.mirrors):
            raise
        part.unlink(missing_ok=True)  # its beginning may have been a mirror's
        fetch(file, part)
