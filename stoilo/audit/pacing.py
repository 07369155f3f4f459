"""How the log's writer paces itself, and which failure of a write is only a full disk."""

from __future__ import annotations

import errno
import functools
import sqlite3
from collections.abc import Callable
from dataclasses import dataclass
from typing import ParamSpec, TypeVar

from stoilo.audit.sqlite import error_code
from stoilo.core.errors import InternalError

__all__ = ["SequencerSettings", "is_disk_full", "with_our_errors"]

Arguments = ParamSpec("Arguments")
Result = TypeVar("Result")

_DISK_FULL = frozenset({errno.ENOSPC, errno.EDQUOT})


@dataclass(frozen=True, slots=True)
class SequencerSettings:
    """How the writer paces itself.

    Attributes:
        batch_leaves: most leaves in one transaction.
        gather_s: how long a batch waits for one more caller while others are arriving, s.
        publish_interval_s: least time between two checkpoints, s; the first after a
            pause is never delayed.
        busy_interval_s: the same after a checkpoint that took in a whole tile or more,
            s: publishing flushes files, and competes with appending for the disk.
        retry_s: pause after a failed publication, s.
        close_s: how long `close` waits for the last publication, s.
    """

    batch_leaves: int = 1000
    gather_s: float = 0.0005
    publish_interval_s: float = 0.04
    busy_interval_s: float = 0.2
    retry_s: float = 0.5
    close_s: float = 10.0


def with_our_errors(
    work: Callable[Arguments, Result],
) -> Callable[Arguments, Result]:
    """Let `work` raise our errors where the machine fails it.

    Raises:
        InternalError: ``STO-L052`` disk full, ``STO-L099`` anything else.
    """

    @functools.wraps(work)
    def run(*values: Arguments.args, **named: Arguments.kwargs) -> Result:
        try:
            return work(*values, **named)
        except (OSError, sqlite3.Error) as error:
            if is_disk_full(error):
                raise InternalError("STO-L052", "the log's disk is full") from error
            raise InternalError(
                "STO-L099", f"the log's files cannot be used: {error}"
            ) from error

    return run


def is_disk_full(error: Exception) -> bool:
    """Return whether a failed write only lacked space and changed nothing."""
    if isinstance(error, sqlite3.OperationalError):
        return error_code(error) == sqlite3.SQLITE_FULL
    return isinstance(error, OSError) and error.errno in _DISK_FULL
