"""What a log says to a witness and what the witness answers, without any I/O.

Source: c2sp.org/tlog-witness v1.0.0. The request is hostile until a log key that the
witness was configured with has verified; the answer is hostile until the witness's key has.
Extension lines in a checkpoint are refused: a cosignature says nothing about them.
"""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from enum import IntEnum

from stoilo.audit.format.merkle import (
    EMPTY_ROOT,
    HASH_BYTES,
    Checkpoint,
    check_consistency,
    decode_base64,
    parse_checkpoint,
    parse_size,
)
from stoilo.audit.format.note import (
    MAX_NOTE_BYTES,
    Note,
    NoteSignature,
    VerifierKey,
    parse_note,
    render_note,
    verify_signature,
)
from stoilo.core.errors import TrustError

MAX_PROOF_LINES = 63
MAX_HEAD_BYTES = 4096
MAX_REQUEST_BYTES = MAX_HEAD_BYTES + MAX_NOTE_BYTES
MAX_ANSWER_BYTES = MAX_NOTE_BYTES
MAX_TOLD_BYTES = 32
SIZE_MEDIA_TYPE = "text/x.tlog.size"


class Status(IntEnum):
    """A witness's answers, as HTTP statuses."""

    COSIGNED = 200
    MALFORMED = 400
    UNTRUSTED = 403
    UNKNOWN_LOG = 404
    OTHER_SIZE = 409
    INCONSISTENT = 422


@dataclass(frozen=True, slots=True)
class Answer:
    """A witness's answer; hostile where it came over the network."""

    status: int  # of HTTP
    body: bytes
    media_type: str = "text/plain; charset=utf-8"


@dataclass(frozen=True, slots=True)
class AddCheckpoint:
    """A request to cosign, nothing of it verified."""

    old: int  # size that the log believes the witness has cosigned last
    proof: tuple[bytes, ...]  # consistency proof from `old` to the checkpoint's size
    note: bytes  # the checkpoint with its signatures, verbatim


@dataclass(frozen=True, slots=True)
class Judgement:
    """What a witness decided about a request."""

    # the answer; only `COSIGNED` lets the checkpoint be stored and cosigned
    status: Status
    # what the log signed, None unless a trusted log key verified
    checkpoint: Checkpoint | None = None
    note: Note | None = None  # the checkpoint with its verified log signatures alone
    reason: str = ""  # for people
    # True when the log's key has signed two trees of one size
    contradiction: bool = False


def hash_origin(origin: str) -> str:
    """Return the name of a log in a witness's monitoring addresses."""
    return hashlib.sha256(origin.encode()).hexdigest()


def render_add_checkpoint(request: AddCheckpoint) -> bytes:
    """Return the request's body."""
    lines = [f"old {request.old}"]
    lines += [base64.b64encode(step).decode() for step in request.proof]
    return "".join(f"{line}\n" for line in lines).encode() + b"\n" + request.note


def parse_add_checkpoint(data: bytes) -> AddCheckpoint:
    """Parse a request's body (hostile).

    Raises:
        TrustError: ``STO-L010``.
    """
    head, blank, note = data.partition(b"\n\n")
    if not blank or len(head) > MAX_HEAD_BYTES or len(note) > MAX_NOTE_BYTES:
        raise TrustError("STO-L010", "the request is too long or holds no checkpoint")
    if not head.isascii():
        raise TrustError("STO-L010", "the request's head is not ASCII")
    first, *lines = head.decode().split("\n")
    if not first.startswith("old ") or len(lines) > MAX_PROOF_LINES:
        raise TrustError("STO-L010", "the request begins with `old` and a size")
    old = parse_size(first.removeprefix("old "), code="STO-L010")
    return AddCheckpoint(old, tuple(_parse_hash(line) for line in lines), note)


def _parse_hash(line: str) -> bytes:
    value = decode_base64(line, code="STO-L010")
    if len(value) != HASH_BYTES:
        raise TrustError("STO-L010", "a proof's hash has 32 bytes")
    return value


def judge_checkpoint(
    # the newest checkpoint that this witness cosigned for the request's origin, None
    # for none. The caller reads it and stores the new one in one transaction.
    stored: Checkpoint | None,
    request: AddCheckpoint,  # hostile
    # of the logs that this witness watches; a key's name is its log's origin
    keys: Sequence[VerifierKey],
) -> Judgement:
    """Decide about a request; pure, and total for any bytes in it.

    Returns:
        the answer, in the order of the protocol: 404, 403, 400, 409, 422, 200.
    """
    try:
        note = parse_note(request.note)
        origin = note.text.decode().partition("\n")[0]
    except TrustError as error:
        return Judgement(Status.MALFORMED, reason=error.message)
    mine = [key for key in keys if key.name == origin]
    if not mine:
        return Judgement(Status.UNKNOWN_LOG, reason="this log is not watched here")
    try:
        signatures = _verify_log(note, mine)
    except TrustError as error:
        return Judgement(Status.UNTRUSTED, reason=error.message)
    try:
        checkpoint = _parse_signed(note.text)
    except TrustError as error:
        return Judgement(Status.MALFORMED, reason=error.message)
    return _judge_signed(stored, request, checkpoint, Note(note.text, signatures))


def _verify_log(note: Note, keys: Sequence[VerifierKey]) -> tuple[NoteSignature, ...]:
    """Return the log's own signatures; a wrong one spoils the note."""
    verified: list[NoteSignature] = []
    for item in note.signatures:
        for key in keys:
            if (item.name, item.key_id) == (key.name, key.key_id):
                verify_signature(note.text, item, key)
                verified.append(item)
    if not verified:
        raise TrustError("STO-L011", "no key of this log has signed the checkpoint")
    return tuple(verified)


def _parse_signed(text: bytes) -> Checkpoint:
    """Parse a checkpoint; a tree of no leaves may still claim any root here."""
    lines = text.split(b"\n")
    empty = base64.b64encode(EMPTY_ROOT)
    if len(lines) > 2 and lines[1] == b"0" and lines[2] != empty:  # noqa: PLR2004
        root = decode_base64(lines[2].decode(errors="replace"), code="STO-L010")
        lines[2] = empty
        honest = parse_checkpoint(b"\n".join(lines))
        return Checkpoint(honest.origin, 0, root)
    return parse_checkpoint(text)


def _judge_signed(
    stored: Checkpoint | None, request: AddCheckpoint, asked: Checkpoint, note: Note
) -> Judgement:
    """Decide about a checkpoint that the log has truly signed."""
    last = stored or Checkpoint(asked.origin, 0, EMPTY_ROOT)
    contradiction = asked.size == last.size and asked.root != last.root

    def answer(status: Status, reason: str) -> Judgement:
        return Judgement(status, asked, note, reason, contradiction)

    if request.old > asked.size:
        return answer(Status.MALFORMED, "the old size is larger than the new one")
    if request.old != last.size:
        return answer(Status.OTHER_SIZE, f"the last size cosigned is {last.size}")
    try:
        check_consistency(last, asked, request.proof)
    except TrustError as error:
        return answer(Status.INCONSISTENT, error.message)
    return answer(Status.COSIGNED, "")


def render_cosignatures(signatures: Sequence[NoteSignature]) -> bytes:
    """Return the body of a `COSIGNED` answer: signature lines."""
    return render_note(Note(b"", tuple(signatures))).removeprefix(b"\n")


def parse_cosignatures(data: bytes) -> tuple[NoteSignature, ...]:
    """Parse the body of a `COSIGNED` answer (hostile); verifies nothing.

    Raises:
        TrustError: ``STO-L010``.
    """
    try:
        note = parse_note(b"\n\n" + data)
    except TrustError as error:
        raise TrustError("STO-L010", f"not cosignatures: {error.message}") from error
    if note.text != b"\n":
        raise TrustError("STO-L010", "not cosignatures: there is a blank line")
    return note.signatures


def parse_told_size(data: bytes) -> int:
    """Parse the body of an `OTHER_SIZE` answer (hostile); raises ``STO-L010``."""
    text = data[:MAX_TOLD_BYTES].decode("ascii", errors="replace")
    return parse_size(text.removesuffix("\n"), code="STO-L010")
