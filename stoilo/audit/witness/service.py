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

from stoilo.audit.format.merkle import Checkpoint, parse_checkpoint
from stoilo.audit.format.misbehaviour import render_misbehaviour
from stoilo.audit.format.note import (
    Note,
    VerifierKey,
    parse_note,
    parse_vkey,
    render_note,
    verify_signature,
)
from stoilo.audit.log.sqlite import connect, transaction
from stoilo.audit.witness.keys import WitnessKey
from stoilo.audit.witness.protocol import (
    SIZE_MEDIA_TYPE,
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
    note BLOB NOT NULL
) STRICT;
"""


@dataclass(frozen=True, slots=True)
class Cosigned:
    """The newest cosigned checkpoint of one log."""

    checkpoint: Checkpoint  # origin, size and root
    time: int  # of the cosignature, POSIX s
    note: bytes  # with the log's signatures and, last, this witness's cosignature


class WitnessStore:
    """The memory of one witness key; thread-safe.

    It holds what was cosigned and nothing else: whatever is read from it is verified
    under the witness's own key.

    Raises:
        TrustError: ``STO-L106`` when the file belongs to another key, is damaged, or is
            gone: a witness that has forgotten would cosign a second history.
        InternalError: ``STO-U006`` when it cannot be read or written.
    """

    def __init__(self, path: Path, vkey: str) -> None:
        self._guard = threading.RLock()
        self._broken = False
        self._key = parse_vkey(vkey)
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
            names = self._connection.execute("SELECT origin_hash FROM cosigned")
            known = [name for (name,) in names.fetchall()]
        if not mark.exists():
            mark.touch(mode=0o600)
            sync_directory(path.parent)
        if row is None or row[0] != vkey:
            self.close()
            raise TrustError("STO-L106", "this memory belongs to another witness key")
        for name in known:
            self.find(name)

    @contextlib.contextmanager
    def change(self) -> Iterator[None]:
        """Keep what is put inside, durably, or nothing of it; one caller at a time."""
        with self._guard, self._errors(), transaction(self._connection):
            yield

    def find(self, origin_hash: str) -> Cosigned | None:
        """Return the newest cosigned checkpoint of the log with that hash."""
        query = "SELECT note FROM cosigned WHERE origin_hash = ?"
        with self._guard, self._errors():
            row = self._connection.execute(query, (origin_hash,)).fetchone()
        if row is None:
            return None
        try:
            note = parse_note(row[0])
            mine, checkpoint = note.signatures[-1], parse_checkpoint(note.text)
            verify_signature(note.text, mine, self._key)
        except (TrustError, TypeError) as error:
            raise TrustError("STO-L106", f"the memory is damaged: {error}") from error
        if hash_origin(checkpoint.origin) != origin_hash:
            raise TrustError("STO-L106", "the memory holds a log under another's name")
        return Cosigned(checkpoint, mine.time, row[0])

    def put(self, origin_hash: str, note: bytes) -> None:
        """Remember what was cosigned last; inside of `change`."""
        query = "INSERT OR REPLACE INTO cosigned VALUES (?, ?)"
        self._connection.execute(query, (origin_hash, note))

    def close(self) -> None:
        """Close the file."""
        with self._guard, contextlib.suppress(sqlite3.Error):
            self._connection.close()

    @contextlib.contextmanager
    def _errors(self) -> Iterator[None]:
        """Turn SQLite's complaints into ours; after a failed disk, believe nothing."""
        if self._broken:
            raise InternalError(
                "STO-U006", "the witness's disk has failed; start again"
            )
        try:
            yield
        except sqlite3.OperationalError as error:
            self._broken = error.sqlite_errorcode & 0xFF == sqlite3.SQLITE_IOERR
            raise InternalError(
                "STO-U006", f"the witness's memory cannot be used: {error}"
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
    """One witness; thread-safe."""

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

    def watch(self, logs: Sequence[VerifierKey]) -> None:
        """Watch these logs from now on; what was cosigned of others is remembered."""
        self._logs = tuple(logs)

    def add_checkpoint(self, body: bytes) -> Answer:
        """Answer a request (hostile bytes of any length that the caller bounded).

        Raises:
            InternalError, TrustError: ``STO-L106``, ``STO-U006``, ``STO-L108``: nothing
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
        name = hash_origin(first.checkpoint.origin)
        with self._store.change():
            last = newest = self._store.find(name)
            stored = None if last is None else last.checkpoint
            judgement = judge_checkpoint(stored, request, self._logs)
            agreed = judgement.status is Status.COSIGNED
            if agreed and not self._is_said(judgement, last):
                newest = self._cosign(judgement, last)
                self._store.put(name, newest.note)
        if judgement.contradiction and judgement.note and last is not None:
            self._keep_evidence(render_note(judgement.note), last.note)
        if agreed and newest is not None:
            mine = parse_note(newest.note).signatures[-1:]
            return Answer(Status.COSIGNED, render_cosignatures(mine))
        if judgement.status is Status.OTHER_SIZE:
            size = last.checkpoint.size if last else 0
            return Answer(409, b"%d\n" % size, SIZE_MEDIA_TYPE)
        return _refusal(judgement.status, judgement.reason)

    def latest(self, origin_hash: str) -> bytes | None:
        """Return the newest cosigned note of a log, by the hash of its origin."""
        if origin_hash not in {hash_origin(key.name) for key in self._logs}:
            return None
        found = self._store.find(origin_hash)
        return None if found is None else found.note

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


def _refusal(status: Status, reason: str) -> Answer:
    """Return a refusal in words, free of line breaks that a client might parse."""
    text = reason.encode(errors="replace").replace(b"\n", b" ")[:500]
    return Answer(int(status), text + b"\n")
