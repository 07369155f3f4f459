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
from typing import TYPE_CHECKING, Self

import msgspec

from stoilo.audit.monitor.finding import (
    Finding,
    Severity,
    parse_finding,
    render_finding,
)
from stoilo.audit.monitor.mirror import MIRROR_SCHEMA, Mirror
from stoilo.audit.policy import (
    LogPolicy,
    SignedCheckpoint,
    log_keys_of,
    open_checkpoint,
)
from stoilo.audit.sqlite import connect, sync_directory
from stoilo.core.errors import TrustError, UnreachableError, UsageError

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

__all__ = ["Memory", "MonitorState"]

_VERSION = 1
_MACHINE = frozenset(
    {
        sqlite3.SQLITE_PERM,
        sqlite3.SQLITE_BUSY,
        sqlite3.SQLITE_LOCKED,
        sqlite3.SQLITE_READONLY,
        sqlite3.SQLITE_IOERR,
        sqlite3.SQLITE_FULL,
        sqlite3.SQLITE_CANTOPEN,
    }
)
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
    """The small part of the memory.

    Attributes:
        note: newest checkpoint that was verified and matched; empty before the first.
        size: leaves under it.
        policy: under which it was verified, as text.
        changed_at: when the log last gave a sign of life, s by our clock.
        cosigned_at: newest cosignature, POSIX s; 0 without witnesses.
        silent: silence was told already.
        shorter: size of the older checkpoint that was told last, -1 for none.
        seen: rows of seen checkpoints that were checked.
        seen_lost: it was told already that rows are gone.
        condemned: the log has misbehaved, provably; it is followed no further.
        hidden: (witness, since, s) whose checkpoint is ahead of what the log shows.
    """

    note: bytes = b""
    size: int = 0
    policy: bytes = b""
    changed_at: int = 0
    cosigned_at: int = 0
    silent: bool = False
    shorter: int = -1
    seen: int = 0
    seen_lost: bool = False
    condemned: bool = False
    hidden: tuple[tuple[str, int], ...] = ()


class MonitorState:
    """One open state; use `open`. Not thread-safe."""

    def __init__(self, connection: sqlite3.Connection, lock: int, path: Path) -> None:
        self.path = path
        self.connection = connection
        self._lock = lock
        self.memory = self._load()
        self.mirror = Mirror(connection, self.memory.size)

    @classmethod
    def open(cls, directory: Path) -> Self:
        """Open or begin the state that lies in a directory of its own.

        Raises:
            UsageError: ``STO-L125`` another monitor uses it.
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
            UsageError: ``STO-L123`` `policy` does not accept it: it is another log's.
            TrustError: ``STO-L124`` they do not fit.
        """
        if not self.memory.note:
            return None
        try:
            # of a log whose witnesses changed, the log's own signature still counts
            signed = open_checkpoint(self.memory.note, log_keys_of(policy))
        except TrustError as error:
            raise UsageError(
                "STO-L123", f"the policy does not accept what was seen: {error.message}"
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
        before, size = self.memory, self.mirror.size
        with _whole():
            self.connection.execute("BEGIN IMMEDIATE")
            try:
                yield
                self._save()
                self.connection.execute("COMMIT")
            except BaseException:
                self.memory, self.mirror.size = before, size
                self.mirror.forget_cache()
                self.connection.rollback()
                raise

    def remember(self, **changes: object) -> None:
        """Change fields of `memory`, inside of `change`."""
        self.memory = msgspec.structs.replace(self.memory, **changes)

    def report(self, finding: Finding) -> None:
        """Keep a finding until it is shown, and a proof for ever; inside of `change`."""
        proof = finding.severity is Severity.PROOF
        if proof:
            self.remember(condemned=True)
        query = "INSERT INTO finding (body, proof) VALUES (?, ?)"
        self.connection.execute(query, (render_finding(finding), proof))

    def findings(self) -> Iterator[tuple[int, Finding]]:
        """Yield (number, finding) of proofs and what was not shown yet, oldest first."""
        last = 0
        query = "SELECT id, body FROM finding WHERE id > ? ORDER BY id LIMIT 1"
        with _whole():
            while row := self.connection.execute(query, (last,)).fetchone():
                last = row[0]
                yield last, parse_finding(row[1])

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


def _take_lock(path: Path) -> int:
    """Return the descriptor of a locked file, or raise ``STO-L125``."""
    lock = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as error:
        os.close(lock)
        raise UsageError("STO-L125", "another monitor uses this state") from error
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


@contextlib.contextmanager
def _whole() -> Iterator[None]:
    """Turn what our own file raises into ``STO-L124``, or ``STO-L002`` by the machine."""
    try:
        yield
    except (msgspec.MsgspecError, UnicodeError) as error:
        raise TrustError("STO-L124", "the monitor's state cannot be read") from error
    except sqlite3.DatabaseError as error:
        if error.sqlite_errorcode & 0xFF in _MACHINE:
            raise UnreachableError(
                "STO-L002", f"the monitor's state cannot be used: {error}"
            ) from error
        raise TrustError(
            "STO-L124", f"the monitor's state is damaged: {error}"
        ) from error
