"""How the log's writer paces itself, and which failure of a write is only a full disk."""

from __future__ import annotations

import errno
import sqlite3
from dataclasses import dataclass

__all__ = ["SequencerSettings", "is_disk_full"]

_DISK_FULL = frozenset({errno.ENOSPC, errno.EDQUOT})


@dataclass(frozen=True, slots=True)
class SequencerSettings:
    """How the writer paces itself.

    Attributes:
        batch_leaves: most leaves in one transaction.
        gather_s: how long a batch may wait for company while others are arriving, s.
        publish_interval_s: least time between two checkpoints, s; the first after a
            pause is never delayed.
        busy_interval_s: the same after a checkpoint that took in a whole tile or more,
            s: publishing flushes files, and competes with appending for the disk.
        retry_s: pause after a failed publication, s.
        close_s: how long `close` waits for the last publication, s.
    """

    batch_leaves: int = 1000
    gather_s: float = 0.002
    publish_interval_s: float = 0.04
    busy_interval_s: float = 0.2
    retry_s: float = 0.5
    close_s: float = 10.0


def is_disk_full(error: Exception) -> bool:
    """Return whether a failed write only lacked space and changed nothing."""
    if isinstance(error, sqlite3.OperationalError):
        return bool(error.sqlite_errorcode == sqlite3.SQLITE_FULL)
    return isinstance(error, OSError) and error.errno in _DISK_FULL
