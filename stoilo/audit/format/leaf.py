"""Leaves, one short text per event, and the public records that they name. Pure.

    stoilo-entry/v1 LF kind LF sha256 LF epoch LF time LF

For an admission, the digest is SHA-256 of the statement's DSSE PAE and the time is
``admitted_at``, so that a verifier can compute the leaf from the statement alone.
Every other leaf names one *record* (`stoilo.audit.format.facts`): a small JSON text of
digests and salted commitments, never names, hosts, nonces, task ids or source. Its bytes
are what counts: nobody re-encodes them. A batch of refusals adds two lines, the count and
the Merkle root over the refused submissions' commitments: how many were refused is
public, what they were is not.

Trust: `parse_leaf`, `parse_record` and `check_record` take hostile bytes.
"""

from __future__ import annotations

import contextlib
import hashlib
import re
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from typing import Final, NamedTuple

import msgspec

from stoilo.audit.format.facts import (
    CodeCount,
    LeafKind,
    MentionKind,
    NamedDigest,
    Record,
    RefusalsRecord,
    WorkunitRecord,
)
from stoilo.audit.format.merkle import leaf_hash, parse_size, root
from stoilo.core.digests import Digest, Domain, check_digest, domain_digest
from stoilo.core.errors import TrustError
from stoilo.core.signatures import pae, parse_strict_json

MAX_LEAF_BYTES = 65_535
LEAF_FORMAT = "stoilo-entry/v1"
_EPOCH = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")
_LINES = 5


_KINDS = frozenset(LeafKind)


@dataclass(frozen=True, slots=True)
class Leaf:
    """One event in the log."""

    kind: LeafKind  # what happened
    # SHA-256 of what it happened to; salted wherever it could be guessed
    digest: Digest
    epoch: str  # the gate epoch it happened in
    time: int  # POSIX seconds
    count: int | None = None  # refusals only, how many
    # refusals only, Merkle root over the refused digests, hex
    root: Digest | None = None


def render_leaf(leaf: Leaf) -> bytes:
    """Return the leaf's bytes; raises ``STO-L024`` for unwritable fields."""
    if not _EPOCH.fullmatch(leaf.epoch) or leaf.time < 0:
        raise TrustError("STO-L024", "a leaf's epoch or time is malformed")
    if (leaf.kind is LeafKind.REFUSALS) != (leaf.count is not None):
        raise TrustError("STO-L024", "refusals carry a count, and nothing else does")
    digest = check_digest(leaf.digest)
    text = f"{LEAF_FORMAT}\n{leaf.kind}\n{digest}\n{leaf.epoch}\n{leaf.time}\n"
    if leaf.count is not None:
        text += f"{leaf.count}\n{check_digest(leaf.root or '')}\n"
    return text.encode()


def parse_leaf(data: bytes) -> Leaf:
    """Parse a leaf of any log; raises ``STO-L024``."""
    if len(data) > MAX_LEAF_BYTES or not data.isascii():
        raise TrustError("STO-L024", "the leaf is too long or not ASCII")
    lines = data.decode().split("\n")
    if len(lines) < _LINES + 1 or lines[0] != LEAF_FORMAT or lines.pop():
        raise TrustError("STO-L024", "not a leaf of this log format")
    if lines[1] not in _KINDS:
        raise TrustError("STO-L024", f"unknown kind of leaf: {lines[1][:32]!r}")
    kind, rest = LeafKind(lines[1]), lines[_LINES:]
    expected = 2 if kind is LeafKind.REFUSALS else 0
    if len(rest) != expected or not _EPOCH.fullmatch(lines[3]):
        raise TrustError("STO-L024", f"a leaf of kind {kind} is malformed")
    time = parse_size(lines[4], code="STO-L024")
    leaf = Leaf(kind, check_digest(lines[2]), lines[3], time)
    if not rest:
        return leaf
    count, batch_root = parse_size(rest[0], code="STO-L024"), check_digest(rest[1])
    return Leaf(leaf.kind, leaf.digest, leaf.epoch, leaf.time, count, batch_root)


@dataclass(frozen=True, slots=True)
class RefusalBatch:
    """Refusals of one researcher in one interval."""

    commitment: Digest  # salted commitment of the researcher
    start: int  # POSIX seconds, inclusive
    end: int  # POSIX seconds, exclusive
    count: int  # how many submissions were refused
    # Merkle root (RFC 6962) over the refused submissions' commitments, hex
    root: Digest


def batch_refusals(
    commitment: Digest, start: int, end: int, refused: Sequence[Digest]
) -> RefusalBatch:
    """Return the batch over `refused` digests, in the order of refusal."""
    hashes = [leaf_hash(bytes.fromhex(check_digest(one))) for one in refused]
    batch_root = Digest(root(hashes).hex())
    return RefusalBatch(commitment, start, end, len(hashes), batch_root)


MAX_RECORD_BYTES: Final = 16 * 1024
RECORD_PAYLOAD: Final = "application/vnd.stoilo.record+json"


class Mention(NamedTuple):
    """One thing that a record names."""

    kind: MentionKind  # of the value
    # 64 hex digits; a code for CODE; a role for KEY (``gate``) besides the key's digest
    value: str


def task_commitment(task_id: str) -> Digest:
    """Return the public name of a task; ids are random, so no salt is needed."""
    return domain_digest(Domain.COMMITMENT, b"task", task_id.encode())


def salted_commitment(salt: str, what: str, *values: str) -> Digest:
    """Return the public name of `values` (texts), which only holders of `salt` can find.

    Args:
        salt: 64 hex digits, for example a statement's nonce.
        what: domain of the values: ``source``, ``arguments``, ….
        values: what is committed to, in order.
    """
    parts = (value.encode() for value in values)
    return domain_digest(
        Domain.COMMITMENT, what.encode(), bytes.fromhex(check_digest(salt)), *parts
    )


def render_record(record: Record) -> bytes:
    """Return the bytes to store and to log; call once per event and keep them.

    Raises:
        TrustError: ``STO-L140`` when the record would be refused by `parse_record`.
    """
    data = msgspec.json.encode(record)
    try:  # the bytes are our own: the fast parser has one meaning for them
        same = _reader().decode(data) == record
    except msgspec.ValidationError as error:
        raise TrustError("STO-L140", f"a record cannot be written: {error}") from error
    if not same or len(data) > MAX_RECORD_BYTES:
        raise TrustError("STO-L140", "a record would not be read as it was written")
    return data


@cache
def _reader() -> msgspec.json.Decoder[Record]:
    """Return the fast parser, made once: making it costs more than reading a record."""
    return msgspec.json.Decoder(Record)


def parse_record(data: bytes) -> Record:
    """Parse a hostile record, at most `MAX_RECORD_BYTES`; raises ``STO-L140``."""
    # Bytes that come out again as they went in have one meaning; only others need the
    # strict parser, which takes ten times as long and is most of checking a long log.
    if len(data) <= MAX_RECORD_BYTES:
        with contextlib.suppress(msgspec.MsgspecError):
            plain = _reader().decode(data)
            if msgspec.json.encode(plain) == data:
                return plain
    try:
        document = parse_strict_json(data, max_bytes=MAX_RECORD_BYTES, what="record")
        record: Record = msgspec.convert(document, type=Record)
    except (TrustError, msgspec.ValidationError) as error:
        raise TrustError("STO-L140", f"not a record: {error}") from error
    return record


def record_digest(data: bytes) -> Digest:
    """Return the digest by which leaves name a record: SHA-256 of its DSSE PAE."""
    return Digest(hashlib.sha256(pae(RECORD_PAYLOAD, data)).hexdigest())


def record_leaf(data: bytes, epoch: str) -> bytes:
    """Return the leaf that names the record `data`; raises ``STO-L140``, ``STO-L024``."""
    return leaf_of(parse_record(data), data, epoch)


def leaf_of(record: Record, data: bytes, epoch: str) -> bytes:
    """Return the leaf of `record`, whose bytes are `data`; raises ``STO-L024``."""
    digest = record_digest(data)
    if isinstance(record, RefusalsRecord):
        count, root = record.count, Digest(record.root)
        leaf = Leaf(record.kind, digest, epoch, record.time, count, root)
    else:
        leaf = Leaf(record.kind, digest, epoch, record.time)
    return render_leaf(leaf)


def check_record(leaf: Leaf, data: bytes) -> Record:
    """Return the hostile record `data` if it is the one that `leaf` names.

    Raises:
        TrustError: ``STO-L140`` not a record, ``STO-L141`` not this leaf's.
    """
    if record_digest(data) != leaf.digest:
        raise TrustError("STO-L141", f"the record is not the one of {leaf.digest[:16]}")
    record = parse_record(data)
    if record.kind is not leaf.kind or record.time != leaf.time:
        raise TrustError(
            "STO-L141", f"a {leaf.kind} leaf names a record of {record.kind}"
        )
    if isinstance(record, RefusalsRecord) and (record.count, record.root) != (
        leaf.count,
        leaf.root,
    ):
        raise TrustError("STO-L141", "the refusals' count or root is not the leaf's")
    return record


def mentions(record: Record) -> frozenset[Mention]:
    """Return everything by which `record` can be searched and watched."""
    found = [
        Mention(kind, value)
        for field, kind in record.named.items()
        for value in _values(getattr(record, field))
    ]
    if isinstance(record, WorkunitRecord):
        public = record.public_source
        kind = MentionKind.DIGEST if public else MentionKind.COMMITMENT
        found.append(Mention(kind, record.source))
    return frozenset(found)


def _values(field: str | tuple[str | CodeCount | NamedDigest, ...]) -> Sequence[str]:
    """Return the texts that a field of a record holds."""
    if isinstance(field, str):
        return (field,) if field else ()
    if not field:
        return ()
    return [_text(value) for value in field]


def _text(value: str | CodeCount | NamedDigest) -> str:
    match value:
        case CodeCount():
            return value.code
        case NamedDigest():
            return value.digest
        case _:
            return value
