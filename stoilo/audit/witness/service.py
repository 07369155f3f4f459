"""A witness's decisions with their memory: request in, answer out; no network here.

Nothing leaves before the checkpoint is on the disk: the cosignature is made inside the
transaction that stores it, and given away after the commit. A witness's time never goes
back, for a cosignature says that its tree was the largest seen *as of then*.
"""

from __future__ import annotations

import contextlib
import logging
import sqlite3
import threading
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from stoilo.audit.format.merkle import HASH_BYTES, Checkpoint, parse_checkpoint
from stoilo.audit.format.misbehaviour import render_misbehaviour
from stoilo.audit.format.note import (
    Note,
    VerifierKey,
    parse_note,
    render_note,
    verify_signature,
)
from stoilo.audit.log.sqlite import connect, transaction
from stoilo.audit.witness.keys import WitnessKey
from stoilo.audit.witness.protocol import (
    SIZE_MEDIA_TYPE,
    AddCheckpoint,
    Answer,
    Judgement,
    Status,
    hash_origin,
    judge_checkpoint,
    parse_add_checkpoint,
    render_cosignatures,
)
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
    """The newest cosigned checkpoint of one log."""

    checkpoint: Checkpoint  # origin, size and root
    time: int  # of the cosignature, POSIX s
    note: bytes  # with the log's signatures and this witness's cosignature


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


LOGGER = logging.getLogger(__name__)
MAX_EVIDENCE = 64
MAX_STEP_S = 24 * 3600
"""A clock further back than this is broken: the witness rather says nothing."""


class WitnessService:
    """One witness; thread-safe.

    Raises:
        TrustError: ``STO-L106`` when the memory does not hold what this key signed.
    """

    def __init__(
        self,
        key: WitnessKey,  # its own
        # keys of the logs that it watches; a key's name is its log's origin
        logs: Sequence[VerifierKey],
        store: WitnessStore,  # its memory
        *,
        clock: Callable[[], int],  # POSIX s
        # directory for contradictions of a log, None to keep none
        evidence: Path | None = None,
    ) -> None:
        self._key = key
        self._logs = tuple(logs)
        self._store = store
        self._clock = clock
        self._evidence = evidence
        self._evidence_guard = threading.Lock()
        for one in store.entries():
            _check_entry(one, key.verifier)

    def watch(self, logs: Sequence[VerifierKey]) -> None:
        """Watch these logs from now on; what was cosigned of others is remembered."""
        self._logs = tuple(logs)

    def add_checkpoint(self, body: bytes) -> Answer:
        """Answer a request (hostile bytes of any length that the caller bounded).

        Raises:
            InternalError, TrustError: ``STO-L106``, ``STO-L107``, ``STO-L108``: nothing
                was cosigned, and the memory is as it was.
        """
        try:
            request = parse_add_checkpoint(body)
        except TrustError as error:
            return _refusal(Status.MALFORMED, error.message)
        # Judged without memory first: what no known log signed opens no transaction.
        first = judge_checkpoint(None, request, self._logs)
        if first.checkpoint is None:  # nothing that a known log has signed
            return _refusal(first.status, first.reason)
        return self._decide(first.checkpoint.origin, request)

    def latest(self, origin_hash: str) -> bytes | None:
        """Return the newest cosigned note of a log, by the hash of its origin."""
        if origin_hash not in {hash_origin(key.name) for key in self._logs}:
            return None
        found = self._store.latest(origin_hash)
        return None if found is None else found.note

    def _decide(self, origin: str, request: AddCheckpoint) -> Answer:
        """Judge against the memory and store, in one transaction."""
        said: list[tuple[Judgement, Cosigned | None]] = []

        def judge(last: Cosigned | None) -> Cosigned | None:
            stored = None if last is None else last.checkpoint
            judgement = judge_checkpoint(stored, request, self._logs)
            said.append((judgement, last))
            if judgement.status is not Status.COSIGNED or self._is_said(
                judgement, last
            ):
                return None
            return self._cosign(judgement, last)

        fresh = self._store.advance(origin, judge)
        judgement, last = said[0]
        if judgement.contradiction and judgement.note and last is not None:
            self._keep_evidence(render_note(judgement.note), last.note)
        newest = fresh or last
        if judgement.status is Status.COSIGNED and newest is not None:
            mine = parse_note(newest.note).signatures[-1:]
            return Answer(Status.COSIGNED, render_cosignatures(mine))
        if judgement.status is Status.OTHER_SIZE:
            size = last.checkpoint.size if last else 0
            return Answer(409, b"%d\n" % size, SIZE_MEDIA_TYPE)
        return _refusal(judgement.status, judgement.reason)

    def _is_said(self, judgement: Judgement, last: Cosigned | None) -> bool:
        """Whether this very checkpoint was cosigned in this second: then say it again.

        Checkpoints are public, so anybody may repeat one; it costs no write.
        """
        return (
            last is not None
            and judgement.checkpoint == last.checkpoint
            and self._time(last) == last.time
        )

    def _cosign(self, judgement: Judgement, last: Cosigned | None) -> Cosigned:
        """Return the judged checkpoint with this witness's signature after the log's."""
        note, checkpoint = judgement.note, judgement.checkpoint
        if note is None or checkpoint is None:
            raise InternalError("STO-L108", "a judgement without its checkpoint")
        time = self._time(last)
        mine = self._key.cosign(note.text, time)
        whole = render_note(Note(note.text, (*note.signatures, mine)))
        return Cosigned(checkpoint, time, whole)

    def _time(self, last: Cosigned | None) -> int:
        """Return a time that is not before the last one said."""
        now, before = self._clock(), last.time if last else 0
        if now < before - MAX_STEP_S:
            raise InternalError(
                "STO-L108", f"the clock went back {before - now} s; nothing is cosigned"
            )
        return max(now, before)

    def _keep_evidence(self, asked: bytes, seen: bytes) -> None:
        """Keep a proof of misbehaviour: two notes of one size, both signed by the log."""
        LOGGER.error("a log has signed two trees of one size")
        if self._evidence is None:
            return
        name = hash_origin(asked.hex())[:32]
        path = self._evidence / f"{name}.misbehaviour"
        try:
            proof = render_misbehaviour(seen, asked, _no_node)
            with self._evidence_guard:
                self._evidence.mkdir(mode=0o700, exist_ok=True)
                kept = len(list(self._evidence.iterdir()))
                if kept < MAX_EVIDENCE and not path.exists():
                    path.write_bytes(proof)
        except (TrustError, OSError) as error:  # an empty tree's root; a full disk
            LOGGER.warning("the evidence could not be kept: %s", error)


def _no_node(level: int, index: int) -> bytes:
    """Two trees of one size contradict each other without any hash below the root."""
    raise TrustError("STO-L023", f"no node {level}, {index} is needed")


def _check_entry(entry: Cosigned, key: VerifierKey) -> None:
    """Refuse a memory whose numbers are not those that were cosigned."""
    try:
        note = parse_note(entry.note)
        mine = note.signatures[-1]
        verify_signature(note.text, mine, key)
        same = (parse_checkpoint(note.text), mine.time) == (
            entry.checkpoint,
            entry.time,
        )
    except TrustError as error:
        raise TrustError("STO-L106", f"the memory is damaged: {error}") from error
    if not same:
        raise TrustError(
            "STO-L106",
            f"the memory of {entry.checkpoint.origin!r} is not what was cosigned",
        )


def _refusal(status: Status, reason: str) -> Answer:
    """Return a refusal in words, free of line breaks that a client might parse."""
    text = reason.encode(errors="replace").replace(b"\n", b" ")[:500]
    return Answer(int(status), text + b"\n")
