"""A monitor's memory: one SQLite file, changed in whole transactions.

What a poll learned and what it found are committed together and only after everything
was matched: a crash in between does the poll again, so no match is lost. Findings wait
in the same file until they were shown, and may be shown twice after a crash.

The file belongs to the monitor alone (0600); it is still checked against itself and the
last checkpoint whenever it is opened.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import sqlite3
from collections import Counter
from collections.abc import Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Self

import msgspec

from stoilo.audit.format.merkle import HASH_BYTES, range_root, root
from stoilo.audit.format.policy import (
    LogPolicy,
    SignedCheckpoint,
    log_keys_of,
    open_checkpoint,
)
from stoilo.audit.format.proof import Leaf
from stoilo.audit.format.tiles import TILE_HEIGHT, TILE_WIDTH, Tile, TileNodes
from stoilo.audit.log.sqlite import connect, damaged, transaction
from stoilo.audit.monitor.finding import (
    Finding,
    FindingKind,
    Severity,
)
from stoilo.core.errors import TrustError, UnreachableError, UsageError
from stoilo.core.files import sync_directory

MIRROR_SCHEMA = """
CREATE TABLE tile (
    level INTEGER NOT NULL, place INTEGER NOT NULL, hashes BLOB NOT NULL,
    PRIMARY KEY (level, place)
) STRICT, WITHOUT ROWID;
"""
_TILE_BYTES = TILE_WIDTH * HASH_BYTES


class Mirror:
    """Hash tiles in a database; the caller owns the transactions."""

    def __init__(
        self,
        connection: sqlite3.Connection,  # where table ``tile`` is
        size: int,  # leaves that it holds
    ) -> None:
        self._connection = connection
        self._nodes = TileNodes(self._read)
        self.size = size

    def extend(self, leaf_hashes: Sequence[bytes]) -> None:
        """Append leaf hashes: the right edge is written anew, full tiles once."""
        fresh, level = list(leaf_hashes), 0
        while fresh:
            have = self.size >> (TILE_HEIGHT * level)
            fresh = self._extend_level(level, have, fresh)
            level += 1
        self.size += len(leaf_hashes)

    def _extend_level(self, level: int, have: int, fresh: list[bytes]) -> list[bytes]:
        """Append to one level; return the hashes that the level above gains."""
        place, width = divmod(have, TILE_WIDTH)
        tile = self._row(level, place)[: width * HASH_BYTES] if width else b""
        above: list[bytes] = []
        for start in range(-width, len(fresh), TILE_WIDTH):
            tile += b"".join(fresh[max(start, 0) : start + TILE_WIDTH])
            self._connection.execute(
                "INSERT OR REPLACE INTO tile VALUES (?, ?, ?)", (level, place, tile)
            )
            if len(tile) == _TILE_BYTES:
                pieces = range(0, _TILE_BYTES, HASH_BYTES)
                above.append(root([tile[at : at + HASH_BYTES] for at in pieces]))
            place, tile = place + 1, b""
        return above

    def node(self, level: int, index: int) -> bytes:
        """Return the root of one perfect subtree; raises ``STO-L124`` if damaged."""
        try:
            return self._nodes.node(level, index, self.size)
        except (TrustError, IndexError) as error:
            raise TrustError(
                "STO-L124", f"the state's hashes at level {level}, {index} are gone"
            ) from error

    def root_at(self, size: int) -> bytes:
        """Return the root that the log had with its first `size` leaves."""
        return range_root(0, size, self.node)

    def forget_cache(self) -> None:
        """Read tiles again; to be called after a transaction was rolled back."""
        self._nodes = TileNodes(self._read)

    def _read(self, tile: Tile) -> bytes:
        return self._row(tile.level, tile.index)

    def _row(self, level: int, place: int) -> bytes:
        query = "SELECT hashes FROM tile WHERE level = ? AND place = ?"
        row = self._connection.execute(query, (level, place)).fetchone()
        return b"" if row is None else bytes(row[0])


TOLD = 2**62  # since when something is wrong that was told: no patience reaches it
_VERSION = 3
MOST_OF_A_KIND = 1000  # alarms of one poll; matches are all told
_whole = partial(damaged, "monitor's state", "STO-L124")
_FILE = "monitor.sqlite"
_SCHEMA = f"""
BEGIN;
CREATE TABLE memory (id INTEGER PRIMARY KEY CHECK (id = 1), body BLOB NOT NULL) STRICT;
{MIRROR_SCHEMA}
CREATE TABLE admission (
    place INTEGER PRIMARY KEY, digest BLOB NOT NULL, leaf BLOB NOT NULL,
    since INTEGER, explained INTEGER NOT NULL DEFAULT 0
) STRICT;
CREATE INDEX admission_digest ON admission (digest);
CREATE INDEX admission_open ON admission (since) WHERE since IS NOT NULL;
CREATE TABLE missing (
    place INTEGER PRIMARY KEY, leaf BLOB NOT NULL, since INTEGER NOT NULL
) STRICT;
CREATE TABLE submitter (commitment TEXT PRIMARY KEY) STRICT, WITHOUT ROWID;
CREATE TABLE replica (
    task TEXT NOT NULL, attempt INTEGER NOT NULL, admission TEXT NOT NULL,
    PRIMARY KEY (task, attempt)
) STRICT, WITHOUT ROWID;
CREATE TABLE ahead (place INTEGER PRIMARY KEY, row BLOB NOT NULL, since INTEGER NOT NULL)
STRICT;
CREATE TABLE finding (
    id INTEGER PRIMARY KEY AUTOINCREMENT, body BLOB NOT NULL, proof INTEGER NOT NULL
) STRICT;
PRAGMA user_version = {_VERSION};
COMMIT;
"""


class Memory(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The small part of the memory."""

    # newest checkpoint that was verified and matched; empty before the first
    note: bytes = b""
    size: int = 0  # leaves under it
    changed_at: int = 0  # when the log last gave a sign of life, s by our clock
    cosigned_at: int = 0  # newest cosignature, POSIX s; 0 without witnesses
    seen: int = 0  # rows of seen checkpoints that were checked
    # the log has misbehaved, provably; it is followed no further
    condemned: bool = False
    # what is wrong by name, and since when, s: each is told once while it lasts
    standing: dict[str, int] = {}


class MonitorState:
    """One open state; use `open`. Not thread-safe."""

    def __init__(self, connection: sqlite3.Connection, lock: int, path: Path) -> None:
        self.path = path
        self.connection = connection
        self._lock = lock
        self._told: Counter[FindingKind] = Counter()
        self.memory = self._load()
        self.mirror = Mirror(connection, self.memory.size)

    @classmethod
    def open(cls, directory: Path) -> Self:
        """Open or begin the state that lies in a directory of its own.

        Raises:
            UsageError: ``STO-L040`` another monitor uses it.
            TrustError: ``STO-L124`` it is damaged or of another version.
            UnreachableError: ``STO-L002`` it cannot be made or opened there.
        """
        try:
            directory.mkdir(mode=0o700, parents=True, exist_ok=True)
            lock = _take_lock(directory / "lock")
        except OSError as error:
            raise UnreachableError(
                "STO-L002", f"the monitor's state cannot be used: {error.strerror}"
            ) from error
        try:
            path = directory / _FILE
            with _whole(), contextlib.ExitStack() as stack:
                connection = stack.enter_context(contextlib.closing(_connect(path)))
                state = cls(connection, lock, path)
                stack.pop_all()
                return state
        except BaseException:
            os.close(lock)
            raise

    def check(self, policy: LogPolicy) -> SignedCheckpoint | None:
        """Return the remembered checkpoint, compared with the hashes kept beside it.

        Raises:
            UsageError: ``STO-L048`` `policy` does not accept it: it is another log's.
            TrustError: ``STO-L124`` they do not fit.
        """
        if not self.memory.note:
            return None
        try:
            # of a log whose witnesses changed, the log's own signature still counts
            signed = open_checkpoint(self.memory.note, log_keys_of(policy))
        except TrustError as error:
            raise UsageError(
                "STO-L048", f"the policy does not accept what was seen: {error.message}"
            ) from error
        with _whole():
            found = self.mirror.root_at(self.memory.size)
        if (signed.checkpoint.size, signed.checkpoint.root) != (
            self.memory.size,
            found,
        ):
            raise TrustError(
                "STO-L124", "the state's hashes are not those of its checkpoint"
            )
        return signed

    @contextlib.contextmanager
    def change(self) -> Iterator[None]:
        """Commit everything done inside, or nothing of it."""
        before, size, told = self.memory, self.mirror.size, self._told.copy()
        try:
            with _whole(), transaction(self.connection):
                yield
                self._save()
        except BaseException:
            # What this process remembers must not run ahead of its file.
            self.memory, self.mirror.size, self._told = before, size, told
            self.mirror.forget_cache()
            raise

    def remember(self, **changes: object) -> None:
        """Change fields of `memory`, inside of `change`."""
        self.memory = msgspec.structs.replace(self.memory, **changes)

    def is_due(self, name: str, now: int, patience_s: int = -1) -> bool:
        """Note that something is wrong; True once, when it has been so for long enough.

        Inside of `change`.
        """
        since = self.memory.standing.get(name, now)
        due = now - since > patience_s
        standing = {**self.memory.standing, name: TOLD if due else since}
        self.remember(standing=standing)
        return due

    def settle(self, *names: str) -> None:
        """Note that things called so are right again; inside of `change`."""
        standing = self.memory.standing.items()
        left = {name: since for name, since in standing if not name.startswith(names)}
        self.remember(standing=left)

    def report(self, finding: Finding) -> None:
        """Keep a finding until it is shown, and a proof for ever; inside of `change`."""
        proof = finding.severity is Severity.PROOF
        if proof:
            self.remember(condemned=True)
        if finding.severity is Severity.ALARM:
            # A log that is all rubbish must not fill our disk with words about it.
            self._told[finding.kind] += 1
            if self._told[finding.kind] > MOST_OF_A_KIND:
                return
        query = "INSERT INTO finding (body, proof) VALUES (?, ?)"
        self.connection.execute(query, (msgspec.json.encode(finding), proof))

    def alarm(
        self,
        kind: FindingKind,
        code: str,
        message: str,
        place: int = -1,
        leaf: Leaf | None = None,
    ) -> None:
        """Report that somebody must look; inside of `change`."""
        self.report(_about(Finding(kind, Severity.ALARM, message, code, place), leaf))

    def notice(
        self, kind: FindingKind, message: str, place: int, leaf: Leaf, watch: str = ""
    ) -> None:
        """Report what is good to know about a leaf; inside of `change`."""
        made = Finding(kind, Severity.NOTICE, message, place=place, watch=watch)
        self.report(_about(made, leaf))

    def tell_omitted(self) -> None:
        """Say how many alarms of a kind were left out since the last time."""
        told, self._told = self._told, Counter()
        for kind, count in told.items():
            if count > MOST_OF_A_KIND:
                message = f"{count - MOST_OF_A_KIND} more of kind {kind}"
                self.alarm(kind, "", message)
        self._told = Counter()

    def findings(self) -> Iterator[tuple[int, Finding]]:
        """Yield (number, finding) of proofs and what was not shown yet, oldest first."""
        last = 0
        query = "SELECT id, body FROM finding WHERE id > ? ORDER BY id LIMIT 1"
        with _whole():
            while row := self.connection.execute(query, (last,)).fetchone():
                last = row[0]
                yield last, msgspec.json.decode(row[1], type=Finding)

    def forget_finding(self, number: int) -> None:
        """Drop a finding that was shown; a proof stays."""
        query = "DELETE FROM finding WHERE id = ? AND NOT proof"
        with _whole():
            self.connection.execute(query, (number,))

    def count_admissions(self) -> int:
        """Return how many admissions the log holds."""
        return self._count("SELECT count(*) FROM admission")

    def count_open(self) -> int:
        """Return how many admissions nothing has explained, overdue or not."""
        return self._count("SELECT count(*) FROM admission WHERE NOT explained")

    def close(self) -> None:
        """Close the file and give up the lock."""
        self.connection.close()
        os.close(self._lock)

    def _count(self, query: str) -> int:
        with _whole():
            return int(self.connection.execute(query).fetchone()[0])

    def _load(self) -> Memory:
        row = self.connection.execute("SELECT body FROM memory").fetchone()
        return Memory() if row is None else msgspec.json.decode(row[0], type=Memory)

    def _save(self) -> None:
        self.connection.execute(
            "INSERT OR REPLACE INTO memory VALUES (1, ?)",
            (msgspec.json.encode(self.memory),),
        )


def _about(finding: Finding, leaf: Leaf | None) -> Finding:
    """Return a finding that says which leaf it is about."""
    if leaf is None:
        return finding
    return msgspec.structs.replace(
        finding, leaf=leaf.kind.value, digest=leaf.digest, time=leaf.time
    )


def _take_lock(path: Path) -> int:
    """Return the descriptor of a locked file, or raise ``STO-L040``."""
    # Two monitors on one state would each take findings away from the other.
    lock = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as error:
        os.close(lock)
        raise UsageError("STO-L040", "another monitor uses this state") from error
    return lock


def _connect(path: Path) -> sqlite3.Connection:
    """Return the database, made if it is not there; raises ``STO-L124``."""
    fresh = not path.exists()
    if fresh:
        os.close(os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600))
    connection = connect(path)
    try:
        version = connection.execute("PRAGMA user_version").fetchone()[0]
        if version == 0:
            connection.executescript(_SCHEMA)
            sync_directory(path.parent)
    except BaseException:
        connection.close()
        raise
    if version in {0, _VERSION}:
        return connection
    connection.close()
    raise TrustError("STO-L124", f"monitor.sqlite has version {version}")
