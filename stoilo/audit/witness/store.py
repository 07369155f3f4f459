"""What a witness must never forget: the newest checkpoint of each log that it cosigned.

One SQLite file in WAL mode, flushed at every commit. Reading the last checkpoint, deciding
and storing the next are one transaction that no other writer can enter, so of two
requests at the same time one sees the other's outcome, also from another process.
"""

from __future__ import annotations

import contextlib
import sqlite3
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

from stoilo.audit.format.checkpoint import Checkpoint
from stoilo.audit.format.merkle import HASH_BYTES
from stoilo.audit.log.sqlite import connect, transaction
from stoilo.audit.witness.protocol import hash_origin
from stoilo.core.errors import InternalError, TrustError
from stoilo.core.files import sync_directory

STORE_FILE = "witness.sqlite"

_SCHEMA = """
CREATE TABLE IF NOT EXISTS witness (
    id INTEGER PRIMARY KEY CHECK (id = 1),
    vkey TEXT NOT NULL
) STRICT;
CREATE TABLE IF NOT EXISTS cosigned (
    origin_hash TEXT PRIMARY KEY,
    origin TEXT NOT NULL,
    size INTEGER NOT NULL,
    root BLOB NOT NULL,
    time INTEGER NOT NULL,
    note BLOB NOT NULL
) STRICT;
"""


@dataclass(frozen=True, slots=True)
class Cosigned:
    """The newest cosigned checkpoint of one log.

    Attributes:
        checkpoint: origin, size and root.
        time: of the cosignature, POSIX s.
        note: with the log's signatures and this witness's cosignature.
    """

    checkpoint: Checkpoint
    time: int
    note: bytes


Decide = Callable[[Cosigned | None], Cosigned | None]
"""The last checkpoint → the next one to store, None to leave all as it is."""


class WitnessStore:
    """The memory of one witness key; thread-safe.

    Raises:
        TrustError: ``STO-L106`` when the file belongs to another key, is damaged, or is
            gone: a witness that has forgotten would cosign a second history.
        InternalError: ``STO-L107`` when it cannot be read or written.
    """

    def __init__(self, path: Path, vkey: str) -> None:
        self._guard = threading.Lock()
        self._broken = False
        fresh, mark = not path.exists(), path.with_suffix(".begun")
        # The mark outlives the database: that tells a lost memory from a first start.
        if fresh and mark.exists():
            raise TrustError(
                "STO-L106",
                f"the witness's memory {path.name} is gone",
                hint="never go on with this key: begin anew in an empty directory",
            )
        with self._errors():
            self._connection = connect(path)
            self._connection.executescript(_SCHEMA)
            self._connection.execute(
                "INSERT INTO witness VALUES (1, ?) ON CONFLICT DO NOTHING", (vkey,)
            )
            row = self._connection.execute("SELECT vkey FROM witness").fetchone()
        if not mark.exists():
            mark.touch(mode=0o600)
            sync_directory(path.parent)
        if row is None or row[0] != vkey:
            self.close()
            raise TrustError("STO-L106", "this memory belongs to another witness key")

    def entries(self) -> list[Cosigned]:
        """Return the newest cosigned checkpoint of every log."""
        with self._guard, self._errors():
            hashes = self._connection.execute("SELECT origin_hash FROM cosigned")
            found = [self._find(row[0]) for row in hashes.fetchall()]
        return [one for one in found if one is not None]

    def advance(self, origin: str, decide: Decide) -> Cosigned | None:
        """Show `decide` the last checkpoint of `origin` and store what it returns.

        One transaction; what is returned is on the disk. Whatever `decide` raises
        leaves everything as it was.
        """
        with self._guard, self._errors(), transaction(self._connection):
            fresh = decide(self._find(hash_origin(origin)))
            if fresh is not None:
                self._store(fresh)
        return fresh

    def latest(self, origin_hash: str) -> Cosigned | None:
        """Return the newest cosigned checkpoint of the log with that hash."""
        with self._guard, self._errors():
            return self._find(origin_hash)

    def close(self) -> None:
        """Close the file."""
        with self._guard, contextlib.suppress(sqlite3.Error):
            self._connection.close()

    def _find(self, origin_hash: str) -> Cosigned | None:
        row = self._connection.execute(
            "SELECT origin, size, root, time, note FROM cosigned WHERE origin_hash = ?",
            (origin_hash,),
        ).fetchone()
        if row is None:
            return None
        origin, size, root, time, note = row
        if size < 0 or len(root) != HASH_BYTES or hash_origin(origin) != origin_hash:
            raise TrustError("STO-L106", "the witness's memory is damaged")
        return Cosigned(Checkpoint(origin, size, root), time, note)

    def _store(self, fresh: Cosigned) -> None:
        checkpoint = fresh.checkpoint
        self._connection.execute(
            "INSERT OR REPLACE INTO cosigned VALUES (?, ?, ?, ?, ?, ?)",
            (
                hash_origin(checkpoint.origin),
                checkpoint.origin,
                checkpoint.size,
                checkpoint.root,
                fresh.time,
                fresh.note,
            ),
        )

    @contextlib.contextmanager
    def _errors(self) -> Iterator[None]:
        """Turn SQLite's complaints into ours; after a failed disk, believe nothing."""
        if self._broken:
            raise InternalError(
                "STO-L107", "the witness's disk has failed; start again"
            )
        try:
            yield
        except sqlite3.OperationalError as error:
            self._broken = error.sqlite_errorcode & 0xFF == sqlite3.SQLITE_IOERR
            raise InternalError(
                "STO-L107", f"the witness's memory cannot be used: {error}"
            ) from error
        except sqlite3.DatabaseError as error:
            raise TrustError(
                "STO-L106", f"the witness's memory is damaged: {error}"
            ) from error
