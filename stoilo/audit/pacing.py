"""How the log's writer paces itself, and which failures of a write changed nothing."""

from __future__ import annotations

import errno
import functools
import sqlite3
from collections.abc import Callable
from dataclasses import dataclass
from typing import ParamSpec, TypeVar

from stoilo.audit.sqlite import error_code
from stoilo.core.errors import InternalError, UnreachableError

__all__ = ["SequencerSettings", "harmless_refusal", "with_our_errors"]

Arguments = ParamSpec("Arguments")
Result = TypeVar("Result")

_DISK_FULL = frozenset({errno.ENOSPC, errno.EDQUOT})
_LOCKED = frozenset({sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED})


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
        InternalError: ``STO-L052`` disk full, ``STO-L067`` a database is locked,
            ``STO-L099`` anything else.
    """

    @functools.wraps(work)
    def run(*values: Arguments.args, **named: Arguments.kwargs) -> Result:
        try:
            return work(*values, **named)
        except (OSError, sqlite3.Error) as error:
            harmless = harmless_refusal(error)
            if harmless is not None:
                raise harmless from error
            raise InternalError(
                "STO-L099", f"the log's files cannot be used: {error}"
            ) from error

    return run


def harmless_refusal(error: Exception) -> InternalError | None:
    """Return our error for a failure that changed nothing; None: nothing is certain.

    A full disk, or a database that another process holds locked: the same step may be
    done again. After any other failure the page cache may lie.
    """
    if _is_disk_full(error):
        return InternalError(
            "STO-L052", "the log's disk is full; nothing was acknowledged"
        )
    cause = error.__cause__ if isinstance(error, UnreachableError) else error
    if isinstance(cause, sqlite3.Error) and error_code(cause) & 0xFF in _LOCKED:
        return InternalError(
            "STO-L067", "another process locks the log; nothing was acknowledged"
        )
    return None


def _is_disk_full(error: Exception) -> bool:
    if isinstance(error, sqlite3.OperationalError):
        return error_code(error) == sqlite3.SQLITE_FULL
    return isinstance(error, OSError) and error.errno in _DISK_FULL
