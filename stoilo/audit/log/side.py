"""The side store: records and published sources by digest, beside the log.

    DIR/audit/side.sqlite

Leaves hold digests; what they are of lies here, for everybody to read. Each object is
hashed on every read, so a disk can lose one but not change it. Records are stored before
their leaf is appended and are never deleted; a published source can be (by a retention
command that is itself in the log), and then a mark stays that it was there. An index
leads from what a record mentions to the places of leaves; it is a convenience, and
readers who trust nothing read the records themselves.
"""

from __future__ import annotations

import hashlib
import sqlite3
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from enum import IntEnum
from itertools import chain, islice
from pathlib import Path

from stoilo.audit.format.facts import MentionKind, Record
from stoilo.audit.format.proof import parse_leaf
from stoilo.audit.format.records import (
    MAX_RECORD_BYTES,
    Mention,
    mentions,
    record_digest,
)
from stoilo.audit.format.tiles import TILE_WIDTH, encode_bundle, split_bundle
from stoilo.audit.log.sqlite import connect, damaged, insert_rows, transaction
from stoilo.core.digests import Digest, check_digest, content_digest
from stoilo.core.errors import TrustError, UnreachableError
from stoilo.core.types import BOUNDS

MAX_RECORDS_BYTES = TILE_WIDTH * (MAX_RECORD_BYTES + 2)
SIDE_FILE = "side.sqlite"
_VERSION = 1
_KEY_BYTES = 16
_AT_ONCE = 500  # pairs in one query
_DIGEST_BYTES = 32
_KINDS = {kind: bytes([number]) for number, kind in enumerate(MentionKind)}
SCHEMA = """
CREATE TABLE object (
    kind INTEGER NOT NULL, digest BLOB NOT NULL, data BLOB,
    stored_at INTEGER NOT NULL, deleted_at INTEGER,
    PRIMARY KEY (kind, digest)
);
CREATE TABLE mention (
    key BLOB NOT NULL, place INTEGER NOT NULL, PRIMARY KEY (key, place)
) WITHOUT ROWID;
"""


class ObjectKind(IntEnum):
    """What an object of the side store is; the value is stored."""

    RECORD = 1
    SOURCE = 2

    @property
    def max_bytes(self) -> int:
        """The most bytes that such an object can have."""
        return MAX_RECORD_BYTES if self is ObjectKind.RECORD else BOUNDS.source_bytes

    def digest(self, data: bytes) -> Digest:
        """Return the digest that names `data`: a record's own, or plain SHA-256."""
        if self is ObjectKind.RECORD:
            return record_digest(data)
        return content_digest(data)


@dataclass(frozen=True, slots=True)
class SideObject:
    """Bytes to store under their own digest."""

    kind: ObjectKind
    data: bytes


def side_path(data_dir: Path) -> Path:
    """Return where the side store of a data directory lies."""
    return data_dir / "audit" / SIDE_FILE


def check_object(kind: ObjectKind, digest: str, data: bytes) -> bytes:
    """Return `data` (hostile) if `digest` names it; raises ``STO-L141``."""
    if len(data) > kind.max_bytes or kind.digest(data) != digest:
        name = f"{kind.name.lower()} {digest}"
        raise TrustError("STO-L141", f"{name} does not have this digest")
    return data


def render_records(records: Sequence[bytes | None]) -> bytes:
    """Return the records of one tile in the framing of entry bundles; a gap is empty."""
    return encode_bundle([record or b"" for record in records])


def parse_records(data: bytes) -> list[bytes | None]:
    """Return the records of a tile (hostile; `check_record` comes after).

    Raises:
        TrustError: ``STO-L010``.
    """
    records, rest = split_bundle(data)
    if rest or any(len(record) > MAX_RECORD_BYTES for record in records):
        raise TrustError("STO-L010", "the records of a tile are cut or too long")
    return [record or None for record in records]


class SideStore:
    """One open side store; thread-safe. Methods raise ``STO-L002`` or ``STO-L049``."""

    def __init__(self, connection: sqlite3.Connection) -> None:
        self._connection = connection
        self._lock = threading.Lock()

    @classmethod
    def open(cls, data_dir: Path) -> SideStore:
        """Open (and make) the store for writing; every `put` is flushed to the disk.

        Raises:
            TrustError: ``STO-L049`` made by another version.
        """
        path = side_path(data_dir)
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        with damaged("side store"):
            return cls._make(connect(path))

    @classmethod
    def in_memory(cls) -> SideStore:
        """Return a store without a file, for tests and for rendering."""
        return cls._make(
            sqlite3.connect(":memory:", isolation_level=None, check_same_thread=False)
        )

    @classmethod
    def _make(cls, connection: sqlite3.Connection) -> SideStore:
        # What retention deletes must not stay readable in pages that are free.
        connection.execute("PRAGMA secure_delete = ON")
        if not _version(connection):
            connection.executescript(
                f"BEGIN; {SCHEMA} PRAGMA user_version = {_VERSION}; COMMIT;"
            )
        return cls(_checked(connection))

    @classmethod
    def read_file(cls, path: Path) -> SideStore:
        """Open the store that is the file `path` for reading, also beside a writer.

        Raises:
            UnreachableError: ``STO-L002`` there is none.
            TrustError: ``STO-L049`` made by another version.
        """
        if not path.is_file():
            raise UnreachableError("STO-L002", f"{path.name} does not exist")
        with damaged("side store"):
            return cls(_checked(connect(path, read_only=True)))

    def put(self, objects: Sequence[SideObject], now: int) -> None:
        """Store objects durably; those already there stay, deleted ones come back."""
        rows = [
            (one.kind, _raw(one.kind.digest(one.data)), one.data) for one in objects
        ]
        # What was deleted on purpose comes back when somebody publishes it anew.
        again = (
            "ON CONFLICT DO UPDATE "
            "SET data = excluded.data, deleted_at = NULL WHERE data IS NULL"
        )
        values = [(*row, now, None) for row in rows]
        with self._writing() as connection:
            insert_rows(connection, "INSERT INTO object", values, again)

    def index(self, records: Sequence[tuple[int, Record]]) -> None:
        """Note what the records of leaves (place, record) mention."""
        found = [(place, mentions(record)) for place, record in records]
        every = frozenset().union(*(mentioned for _, mentioned in found))
        keys = {mention: index_key(mention) for mention in every}
        rows = {
            (keys[mention], place)
            for place, mentioned in found
            for mention in mentioned
        }
        with self._writing() as connection:
            insert_rows(connection, "INSERT OR IGNORE INTO mention", sorted(rows))

    def get(self, kind: ObjectKind, digest: str) -> bytes | None:
        """Return an object, None when it is not here (any more).

        Raises:
            TrustError: ``STO-L141`` when its bytes have changed; the message names it.
        """
        query = "SELECT data FROM object WHERE kind = ? AND digest = ?"
        row = self._one(query, (kind, _raw(digest)))
        if row is None or row[0] is None:
            return None
        return check_object(kind, digest, _stored(row[0]))

    def was_deleted(self, kind: ObjectKind, digest: str) -> bool:
        """Whether an object was here and was deleted on purpose."""
        query = "SELECT deleted_at FROM object WHERE kind = ? AND digest = ?"
        row = self._one(query, (kind, _raw(digest)))
        return row is not None and row[0] is not None

    def delete(self, digests: Sequence[str], now: int) -> int:
        """Delete published sources from the disk; returns how many were there."""
        query = (
            "UPDATE object SET data = NULL, deleted_at = ? "
            "WHERE kind = ? AND digest = ? AND data IS NOT NULL"
        )
        rows = [(now, ObjectKind.SOURCE, _raw(digest)) for digest in digests]
        with self._writing() as connection:
            count = connection.executemany(query, rows).rowcount
        with self._lock, damaged("side store"):
            # Else the deleted bytes stay in the write-ahead log.
            self._connection.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchall()
        return count

    def count(self, kind: ObjectKind) -> int:
        """Return how many objects of a kind are here."""
        query = "SELECT COUNT(*) FROM object WHERE kind = ? AND data IS NOT NULL"
        row = self._one(query, (kind,))
        return int(str(row[0])) if row else 0

    def find_newest(
        self, mention: Mention, *, end: int, limit: int = 1000
    ) -> list[int]:
        """Return places < `end` of leaves whose record mentions this, highest first."""
        query = (
            "SELECT place FROM mention WHERE key = ? AND place < ? "
            "ORDER BY place DESC LIMIT ?"
        )
        with self._lock, damaged("side store"):
            rows = self._connection.execute(query, (index_key(mention), end, limit))
            return [place for (place,) in rows]

    def records_of(self, entries: Sequence[bytes]) -> list[bytes | None]:
        """Return the record of each leaf, None where it has none."""
        return [self._record_of(entry) for entry in entries]

    def scrub(self) -> Iterator[tuple[str, str]]:
        """Yield the sources whose bytes changed, and rows of no known kind.

        Records are checked against their leaves, which takes the same hash.
        """
        last: tuple[object, ...] = (0, b"")
        query = (
            "SELECT kind, digest, data FROM object WHERE (kind, digest) > (?, ?) "
            "AND kind IS NOT 1 ORDER BY kind, digest LIMIT 256"
        )
        while rows := self._all(query, last):
            for kind, digest, data in rows:
                yield from _object_faults(kind, digest, data)
            last = rows[-1][:2]

    def raw_records(self, digests: Sequence[str]) -> dict[str, bytes]:
        """Return the records that are here, at most 256, by digest; nothing is hashed."""
        marks = ",".join("?" * len(digests))
        query = (
            f"SELECT digest, data FROM object WHERE kind = ? AND digest IN ({marks})"  # noqa: S608 - question marks only
        )
        rows = self._all(query, (ObjectKind.RECORD, *map(_raw, digests)))
        return {_stored(digest).hex(): _stored(data) for digest, data in rows}

    def find_unindexed(self, records: Mapping[int, Record]) -> list[int]:
        """Return the places of those leaves whose record the index does not lead to."""
        wanted = {
            (index_key(mention), place)
            for place, record in records.items()
            for mention in mentions(record)
        }
        waiting, found = iter(wanted), set[tuple[object, ...]]()
        while part := list(islice(waiting, _AT_ONCE)):
            marks = ",".join(["(?,?)"] * len(part))
            query = (
                f"SELECT key, place FROM mention WHERE (key, place) IN (VALUES {marks})"  # noqa: S608 - question marks only
            )
            found.update(self._all(query, tuple(chain.from_iterable(part))))
        return sorted({row[1] for row in wanted if row not in found})

    def close(self) -> None:
        """Close the database."""
        with self._lock:
            self._connection.close()

    def _record_of(self, entry: bytes) -> bytes | None:
        try:
            leaf = parse_leaf(entry)
        except TrustError:
            return None
        return self.get(ObjectKind.RECORD, leaf.digest)

    def _one(self, query: str, values: tuple[object, ...]) -> tuple[object, ...] | None:
        with self._lock, damaged("side store"):
            row: tuple[object, ...] | None
            row = self._connection.execute(query, values).fetchone()
            return row

    def _all(self, query: str, values: tuple[object, ...]) -> list[tuple[object, ...]]:
        with self._lock, damaged("side store"):
            return self._connection.execute(query, values).fetchall()

    @contextmanager
    def _writing(self) -> Iterator[sqlite3.Connection]:
        """Yield the connection in a transaction that is flushed at its end."""
        with self._lock, damaged("side store"), transaction(self._connection):
            yield self._connection


def _object_faults(
    kind: object, digest: object, data: object
) -> Iterator[tuple[str, str]]:
    name = f"object {kind}/{digest!r}"[:96]
    known = isinstance(kind, int) and kind in set(ObjectKind)
    if not known or not isinstance(digest, bytes):
        yield name, "a row of no kind that this version writes"
        return
    object_kind = ObjectKind(int(str(kind)))
    name = f"{object_kind.name.lower()} {digest.hex()}"
    if data is None and object_kind is ObjectKind.SOURCE:
        return  # deleted by a retention command
    if not isinstance(data, bytes) or object_kind.digest(data) != digest.hex():
        yield name, "its bytes do not have this digest"


def index_key(mention: Mention) -> bytes:
    """Return the index's short form: 128 bits, only ever compared.

    A false hit can be made, by somebody who makes digests alike; readers look anyway.
    """
    kind, value = mention
    if len(value) == 2 * _DIGEST_BYTES:
        return _KINDS[kind] + bytes.fromhex(value[: 2 * _KEY_BYTES - 2])
    return _KINDS[kind] + hashlib.sha256(value.encode()).digest()[: _KEY_BYTES - 1]


def _raw(digest: str) -> bytes:
    return bytes.fromhex(check_digest(digest))


def _stored(value: object) -> bytes:
    return value if isinstance(value, bytes) else str(value).encode()


def _version(connection: sqlite3.Connection) -> int:
    return int(connection.execute("PRAGMA user_version").fetchone()[0])


def _checked(connection: sqlite3.Connection) -> sqlite3.Connection:
    """Return the connection, or close it and raise ``STO-L049``."""
    if (version := _version(connection)) == _VERSION:
        return connection
    connection.close()
    raise TrustError("STO-L049", f"side.sqlite has version {version}")
