"""Group commit: whoever waits for the write lock together waits for the disk once.

The first that gets its turn does the work of all that wait, one after the other in one
transaction, and commits; the others find theirs done. Nobody is told before the commit.
"""

from __future__ import annotations

import threading
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeVar, cast

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from contextlib import AbstractContextManager

    from sqlalchemy import Connection

__all__ = ["CommitGroup"]

MOST = 32
"""Pieces of work in one transaction: the first of them waits for the last."""

_T = TypeVar("_T")


@dataclass(slots=True)
class _Entry:
    """One piece of work and how it ended."""

    work: Callable[[Connection], object]
    value: object = None
    error: Exception | None = None
    done: bool = False


class CommitGroup:
    """Shares the transactions of `write`, which yields a connection inside one."""

    def __init__(
        self, write: Callable[[], AbstractContextManager[Connection]], most: int = MOST
    ) -> None:
        self._write = write
        self._most = most
        self._waiting: list[_Entry] = []
        self._list = threading.Lock()
        self._turn = threading.Lock()

    def run(self, work: Callable[[Connection], _T]) -> _T:
        """Return what `work` returns, after the commit; raises what it or that raises."""
        entry = _Entry(work)
        with self._list:
            self._waiting.append(entry)
        with self._turn:
            while not entry.done:
                self._lead()
        if entry.error is not None:
            raise entry.error
        return cast("_T", entry.value)

    def _lead(self) -> None:
        """Do the work of those who have waited longest."""
        with self._list:
            group = self._waiting[: self._most]
            del self._waiting[: self._most]
        if not self._commit(group) and len(group) > 1:
            for entry in group:  # one of them failed: the others shall not
                self._commit([entry])
        for entry in group:
            entry.done = True

    def _commit(self, group: Sequence[_Entry]) -> bool:
        """Do the work of a group in one transaction; returns whether it is stored."""
        try:
            with self._write() as connection:
                values: list[Any] = [entry.work(connection) for entry in group]
        except Exception as error:  # noqa: BLE001 - it belongs to whoever gave the work
            for entry in group:
                entry.error = error
            return False
        for entry, value in zip(group, values, strict=True):
            entry.value, entry.error = value, None
        return True
