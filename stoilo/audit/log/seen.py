"""Checkpoints that executors saw, kept and published one line a result, for monitors.

A log that shows a chosen volunteer a fork must sign a checkpoint of it. The volunteer
sends that checkpoint back with his result, the server keeps it here, and whoever watches
the log compares it with the tree that he derived himself. What this rests on is a server
that publishes: one that forks *and* hides the line is caught by witnesses only, or by
volunteers who look for their own line.

    DIR/audit/seen.sqlite       notes by digest, rows in order of arrival; never changed
    /audit/seen/<N>             rows [256 N, 256 N + 256) as JSON lines

A row holds commitments of random names only (RFC 6962's answer to gossip, made small).
"""

from __future__ import annotations

import sqlite3
import threading
from pathlib import Path
from typing import Annotated, Final

import msgspec

from stoilo.audit.format.merkle import Checkpoint
from stoilo.audit.format.policy import LogPolicy, log_keys_of, open_checkpoint
from stoilo.audit.log.sqlite import connect, damaged, transaction
from stoilo.core.digests import Digest, Domain, content_digest, domain_digest
from stoilo.core.errors import TrustError
from stoilo.core.files import sync_directory
from stoilo.core.types import BOUNDS

PAGE_ROWS: Final = 256
MAX_ROW_BYTES: Final = 2 * BOUNDS.seen_checkpoint_bytes + 1024
MAX_PAGE_BYTES: Final = PAGE_ROWS * MAX_ROW_BYTES
_NAME = "store of seen checkpoints"
_Sha256 = Annotated[Digest, msgspec.Meta(pattern=r"\A[0-9a-f]{64}\Z")]
SCHEMA = """
CREATE TABLE IF NOT EXISTS note (
    digest TEXT PRIMARY KEY,
    text BLOB NOT NULL
) STRICT, WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS seen (
    place INTEGER PRIMARY KEY,
    result TEXT NOT NULL UNIQUE,
    body BLOB NOT NULL,
    note TEXT NOT NULL,
    sum TEXT NOT NULL
) STRICT;
"""
_INSERT = "INSERT INTO seen (place, result, body, note, sum) VALUES (?, ?, ?, ?, ?)"
_SELECT = (
    "SELECT place, body, seen.note, sum, text FROM seen "
    "LEFT JOIN note ON digest = seen.note "
    "WHERE place >= ? AND place < ? ORDER BY place"
)


class SeenRow(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """One executor's word about the log; hostile until its note was verified."""

    result: _Sha256  # commitment of the result's name, `result_commitment`
    task: _Sha256  # commitment of the task's id, as in the log's records
    # which attempt of the task, from 1
    attempt: Annotated[int, msgspec.Meta(ge=0, le=2**31)]
    admission: _Sha256  # SHA-256 of the admission's PAE: the digest of its leaf
    # the signed note under which the executor found that leaf
    checkpoint: Annotated[str, msgspec.Meta(max_length=BOUNDS.seen_checkpoint_bytes)]


def result_commitment(name: str) -> Digest:
    """Return the public stand-in of a result's name (random, so no salt is needed)."""
    return domain_digest(Domain.COMMITMENT, b"result", name.encode())


def render_seen_row(row: SeenRow) -> bytes:
    """Return one line of a page, with its newline."""
    return msgspec.json.encode(row) + b"\n"


def parse_seen_page(data: bytes) -> tuple[SeenRow, ...]:
    """Parse one page of a hostile server.

    Raises:
        TrustError: ``STO-L010``.
    """
    if len(data) > MAX_PAGE_BYTES or (data and not data.endswith(b"\n")):
        raise TrustError("STO-L010", "a page of seen checkpoints is cut or too long")
    lines = data.split(b"\n")[:-1]
    if len(lines) > PAGE_ROWS:
        raise TrustError("STO-L010", f"a page holds at most {PAGE_ROWS} rows")
    return tuple(_parse_row(line) for line in lines)


def _parse_row(line: bytes) -> SeenRow:
    try:
        return msgspec.json.decode(line, type=SeenRow)
    except (msgspec.MsgspecError, RecursionError, UnicodeError) as error:
        raise TrustError("STO-L010", "a row of a seen page is malformed") from error


def open_seen(note: str, policy: LogPolicy) -> Checkpoint:
    """Return the checkpoint of a note that a log key of `policy` signed.

    Witnesses are not asked for: the log answers for whatever it signed.

    Raises:
        TrustError: ``STO-L131``.
    """
    data = note.encode(errors="surrogatepass")
    if not 0 < len(data) <= BOUNDS.seen_checkpoint_bytes:
        raise TrustError(
            "STO-L131", "the result names no checkpoint, or too long a one"
        )
    try:
        return open_checkpoint(data, log_keys_of(policy)).checkpoint
    except TrustError as error:
        raise TrustError(
            "STO-L131", f"the result's checkpoint is not this log's: {error.message}"
        ) from error


class SeenStore:
    """The rows of one server; durable when `put` returns, thread-safe."""

    def __init__(self, path: Path, *, read_only: bool = False) -> None:
        self._path = path
        self._read_only = read_only
        self._guard = threading.Lock()
        self._connection: sqlite3.Connection | None = None

    @classmethod
    def below(cls, data_dir: Path, *, read_only: bool = False) -> SeenStore:
        """Return the store of a server's data directory."""
        return cls(data_dir / "audit" / "seen.sqlite", read_only=read_only)

    def put(self, row: SeenRow) -> bool:
        """Keep a row durably; False when this result's row is there already."""
        note = row.checkpoint.encode()
        digest = content_digest(note)
        body = msgspec.json.encode(msgspec.structs.replace(row, checkpoint=""))
        with damaged(_NAME), self._guard, transaction(self._open()) as connection:
            known = "SELECT 1 FROM seen WHERE result = ?"
            if connection.execute(known, (row.result,)).fetchone():
                return False
            # Places without gaps: a row that is missing later shows.
            place = _count(connection)
            connection.execute(
                "INSERT OR IGNORE INTO note VALUES (?, ?)", (digest, note)
            )
            total = _sum(place, body, digest)
            connection.execute(_INSERT, (place, row.result, body, digest, total))
        return True

    def size(self) -> int:
        """Return how many rows there are."""
        if not self._present():
            return 0
        with damaged(_NAME), self._guard:
            return _count(self._open())

    def page(self, number: int) -> bytes | None:
        """Return a page as it is published, None beyond the last one.

        Raises:
            TrustError: ``STO-L049`` the file is damaged, ``STO-L141`` a row or note is
                not what was kept.
        """
        rows = self.rows(number * PAGE_ROWS, (number + 1) * PAGE_ROWS)
        return b"".join(render_seen_row(row) for row in rows) or None

    def rows(self, start: int, end: int) -> list[SeenRow]:
        """Return rows [start, end) as far as there are any; raises as `page`."""
        if not self._present():
            return []
        with damaged(_NAME), self._guard:
            found = self._open().execute(_SELECT, (start, end)).fetchall()
        return [
            _make_row(place, fields)
            for place, fields in zip(range(start, end), found, strict=False)
        ]

    def close(self) -> None:
        """Close the file."""
        with self._guard:
            if self._connection is not None:
                self._connection.close()
            self._connection = None

    def _present(self) -> bool:
        return self._connection is not None or self._path.exists()

    def _open(self) -> sqlite3.Connection:
        if self._connection is None:
            self._path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            self._connection = connect(self._path, read_only=self._read_only)
            if not self._read_only:
                self._connection.executescript(SCHEMA)
                sync_directory(self._path.parent)
        return self._connection


def _count(connection: sqlite3.Connection) -> int:
    query = "SELECT coalesce(max(place) + 1, 0) FROM seen"
    return int(connection.execute(query).fetchone()[0])


def _sum(place: int, body: bytes, note: str) -> Digest:
    return content_digest(f"{place} {note} ".encode() + body)


def _make_row(place: int, fields: tuple[int, bytes, str, str, bytes | None]) -> SeenRow:
    """Return one row as it was kept; `fields` in the order of the query."""
    stored, body, note, total, text = fields
    if stored != place or _sum(place, body, note) != total:
        raise TrustError("STO-L141", f"row {place} of seen.sqlite is not what was kept")
    if text is None or content_digest(text) != note:
        raise TrustError(
            "STO-L141", f"the note of row {place} of seen.sqlite is not what was kept"
        )
    row = msgspec.json.decode(body, type=SeenRow)
    return msgspec.structs.replace(row, checkpoint=text.decode())
