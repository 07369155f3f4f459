"""The leaves in the log database, read in blocks, whatever state the database is in."""

from __future__ import annotations

import sqlite3
from contextlib import closing, contextmanager, suppress
from functools import partial
from typing import TYPE_CHECKING

from stoilo.audit.sqlite import connect
from stoilo.audit.tiles import TILE_WIDTH

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from stoilo.audit.fsck.parts import LogParts

__all__ = ["LeafRows"]


class LeafRows:
    """Reads blocks of 256 leaves; what cannot be read is reported once a block."""

    def __init__(self, parts: LogParts, path: Path) -> None:
        self.file = parts.name(path)
        self._parts = parts
        self._path = path
        self._connection: sqlite3.Connection | None = None

    def is_there(self) -> bool:
        """Tell whether the table of leaves can be read at all; closes it when not."""
        try:
            self.select("SELECT idx FROM leaves LIMIT 1").fetchall()
        except (sqlite3.DatabaseError, UnicodeError):
            self.close()
            return False
        return True

    def block(self, index: int, width: int) -> list[bytes | None]:
        """Return the leaves of a block, None where there is no row."""
        start = index * TILE_WIDTH
        place = f"leaves {start} to {start + width - 1}"
        rows = dict(
            self._parts.guard(self.file, lambda: self._rows(start, width), place) or []
        )
        return [rows.get(start + at) for at in range(width)]

    def acknowledged(self, size: int) -> Iterator[tuple[int, bytes]]:
        """Yield the rows below `size` that can be read: place and leaf."""
        for index in range(-(-size // TILE_WIDTH)):
            start = index * TILE_WIDTH
            read = partial(self._rows, start, min(TILE_WIDTH, size - start))
            yield from self._parts.guard(self.file, read) or ()

    @contextmanager
    def snapshot(self) -> Iterator[None]:
        """Let all that is read inside be of one moment, beside a writer."""
        self.select("BEGIN")
        try:
            yield
        finally:
            with suppress(sqlite3.Error):
                self.select("ROLLBACK")

    def select(self, query: str, *values: int) -> sqlite3.Cursor:
        """Run a query of our own; raises sqlite3.DatabaseError."""
        if self._connection is None:
            self._connection = connect(self._path, read_only=True)
            self._connection.text_factory = bytes  # a flipped bit may end UTF-8
        return self._connection.execute(query, values)

    def _rows(self, start: int, width: int) -> list[tuple[int, bytes]]:
        query = (
            "SELECT idx, leaf FROM leaves "
            "WHERE idx >= ? AND idx < ? AND typeof(leaf) = 'blob'"
        )
        return self.select(query, start, start + width).fetchall()

    def close(self) -> None:
        """Close the database."""
        if self._connection is not None:
            with suppress(sqlite3.Error), closing(self._connection):
                pass
            self._connection = None
