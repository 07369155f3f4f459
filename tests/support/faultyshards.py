"""Kills within a shard's statements, and shards that keep no promise over them: controls."""

from __future__ import annotations

import os
import signal
from collections.abc import Mapping
from pathlib import Path
from sqlite3 import Connection

from stoilo.learn.store import shards, values
from stoilo.learn.store.protocol import Cell

__all__ = ["KINDS", "Careless", "Hasty", "kill_before"]


class Careless(shards.LocalShard):
    """Writes values and marks in two transactions."""

    def _write(self, file: Connection, rows: list[tuple[str, bytes]]) -> None:
        for key, body in rows:
            unmarked = values.encode(Cell(values.decode(body, Cell).value))
            file.execute("INSERT OR REPLACE INTO cell VALUES (?, ?)", (key, unmarked))
        super()._write(file, rows)


class Hasty(shards.LocalShard):
    """Acknowledges before it writes."""

    later: list[tuple[str, bytes]] = []  # noqa: RUF012 - replaced, never changed

    def _write(self, file: Connection, rows: list[tuple[str, bytes]]) -> None:
        if self.later:
            super()._write(file, self.later)
        self.later = rows

    def close(self) -> None:
        """Write what was acknowledged last, and close."""
        if self._file is not None:
            self._write(self._file, [])
        super().close()


KINDS: Mapping[str, type[shards.LocalShard]] = {
    "careful": shards.LocalShard,
    "careless": Careless,
    "hasty": Hasty,
}


def kill_before(statement: int) -> None:
    """Let the statement-th SQL statement of this process, from now on, be its end."""
    left = statement

    def trace(_text: str) -> None:
        nonlocal left
        left -= 1
        if left == 0:
            os.kill(os.getpid(), signal.SIGKILL)

    plain = shards.connect  # type: ignore[attr-defined]  # what the module calls

    def connect(path: Path, *, read_only: bool = False) -> Connection:
        connection: Connection = plain(path, read_only=read_only)
        connection.set_trace_callback(trace)
        return connection

    shards.connect = connect  # type: ignore[attr-defined]  # as above
