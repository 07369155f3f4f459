"""The embedded engine's database: its tables, and transactions that callers share.

Those who wait for the write lock at the same time can share one transaction and its wait
for the disk (`write_together`). A piece of work that may find nothing to write can be tried
on a connection that reads: it says `must_write` before it changes anything, and is begun
again if that raises.
"""

from __future__ import annotations

import threading
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeVar, cast

from stoilo.server.db.store import is_writing
from stoilo.server.engines.database import EngineDatabase
from stoilo.server.engines.embedded.db.schema import metadata
from stoilo.server.migrations import Branch

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from contextlib import AbstractContextManager

    from sqlalchemy import Connection

# Pieces of work in one transaction: the first of them waits for the last
MOST = 32
_T = TypeVar("_T")


@dataclass(slots=True, eq=False)
class _Entry:
    """One piece of work and how it ended."""

    work: Callable[[Connection], object]
    value: object = None
    error: Exception | None = None
    done: bool = False


# Group commit: the first that gets its turn does the work of all that wait, one after the
# other in one transaction, and commits; the others find theirs done. Nobody is told before
# the commit.
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
        """Return what `work` returns, after the commit; raises what it or that raises.

        Whoever is stopped (by `SystemExit`, `KeyboardInterrupt`) while it does the work of
        others leaves that to them.
        """
        entry = _Entry(work)
        with self._list:
            self._waiting.append(entry)
        try:
            with self._turn:
                while not entry.done:
                    self._lead()
        except BaseException:
            self._leave(entry)
            raise
        if entry.error is not None:
            raise entry.error
        return cast("_T", entry.value)

    def _leave(self, entry: _Entry) -> None:
        """Do not wait any more: nobody is to do work whose end nobody hears of."""
        with self._list:
            if entry in self._waiting:
                self._waiting.remove(entry)

    def _lead(self) -> None:
        with self._list:
            group = self._waiting[: self._most]
            del self._waiting[: self._most]
        try:
            self._do(group)
        except BaseException:  # we are stopped: the others still wait
            with self._list:
                self._waiting[:0] = [one for one in group if not one.done]
            raise

    def _do(self, group: Sequence[_Entry]) -> Exception | None:
        """Do the work of a group in one transaction, or failing that in one each.

        Returns:
            why no transaction began, for which all of them failed; None if one did.
        """
        begun = False
        try:
            with self._write() as connection:
                begun = True
                values: list[Any] = [entry.work(connection) for entry in group]
        except Exception as error:  # noqa: BLE001 - it belongs to whoever gave the work
            if begun and len(group) > 1:  # one of them failed: the others shall not
                self._do_each(group)
                return None
            _fail(group, error)
            return None if begun else error
        for entry, value in zip(group, values, strict=True):
            entry.value, entry.done = value, True
        return None

    def _do_each(self, group: Sequence[_Entry]) -> None:
        """Do each work in a transaction of its own, until none begins any more.

        The lock is waited for long: the second time, who waits behind these would have
        waited for nothing.
        """
        for at, entry in enumerate(group):
            refused = self._do([entry])
            if refused is not None:
                _fail(group[at + 1 :], refused)
                return


def _fail(group: Sequence[_Entry], error: Exception) -> None:
    for entry in group:
        entry.error, entry.done = error, True


ENGINE = Branch("engine", "engine_version", metadata, "engine0003")


class NeedsWritingError(Exception):
    """Work on a connection that reads has come to something that it has to write."""


def must_write(connection: Connection) -> None:
    """Raise `NeedsWritingError` unless the connection is inside a write transaction."""
    if not is_writing(connection):
        raise NeedsWritingError


class Database(EngineDatabase):
    """The engine's database behind `url` (SQLAlchemy form)."""

    def __init__(self, url: str) -> None:
        super().__init__(url, ENGINE)
        self._group = CommitGroup(self.write)

    def write_together(self, work: Callable[[Connection], _T]) -> _T:
        """Return what `work` returns, once it is durable; others' may share the commit.

        Each sees what those before it have written. When one fails, none of them is
        stored, and each is done again in a transaction of its own: so `work` has no other
        effects than those in the database.

        Raises:
            InternalError: ``STO-R030`` when the database refuses; nothing is stored.
        """
        return self._group.run(work)
