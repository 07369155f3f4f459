"""The embedded engine's database: its tables, and transactions that callers share.

Those who wait for the write lock at the same time can share one transaction and its wait
for the disk (`write_together`). A piece of work that may find nothing to write can be tried
on a connection that reads: it says `must_write` before it changes anything, and is begun
again if that raises.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeVar

from stoilo.server.engines.database import EngineDatabase, is_writing
from stoilo.server.engines.embedded.groupcommit import CommitGroup
from stoilo.server.engines.embedded.schema import metadata
from stoilo.server.migrations import Branch

if TYPE_CHECKING:
    from collections.abc import Callable

    from sqlalchemy import Connection

__all__ = ["ENGINE", "Database", "NeedsWritingError", "is_writing", "must_write"]

ENGINE = Branch("engine", "engine_version", metadata)

_T = TypeVar("_T")


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
            InternalError: ``STO-E003`` when the database refuses; nothing is stored.
        """
        return self._group.run(work)
