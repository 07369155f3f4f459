"""Records: what a leaf's digest stands for, in public and without anything private. Pure.

An admission's leaf names a private statement. Every other leaf names one *record*: a
small JSON text that holds digests and salted commitments only, never names, hosts,
nonces, task ids or source. Records lie in the side store (`stoilo.audit.log.side`) and are
served to everybody; `check_record` binds one to its leaf. The bytes are what counts:
nobody re-encodes them.

Trust: `parse_record` takes hostile bytes.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from functools import cache
from typing import Final, NamedTuple

import msgspec

from stoilo.audit.format.facts import (
    CodeCount,
    FlavorRecord,
    KeyRecord,
    LevelRecord,
    MentionKind,
    NamedDigest,
    OperatorAct,
    OperatorRecord,
    OutcomeRecord,
    PolicyRecord,
    Record,
    RefusalsRecord,
    ReleaseRecord,
    RetentionRecord,
    ReviewRecord,
    RevocationRecord,
    WorkunitRecord,
)
from stoilo.audit.format.leaf import Leaf, render_leaf
from stoilo.core.digests import Digest, Domain, check_digest, domain_digest
from stoilo.core.errors import TrustError
from stoilo.core.signatures import pae
from stoilo.core.strict_json import parse_strict_json

__all__ = [
    "MAX_RECORD_BYTES",
    "RECORD_PAYLOAD",
    "CodeCount",
    "FlavorRecord",
    "KeyRecord",
    "LevelRecord",
    "Mention",
    "MentionKind",
    "NamedDigest",
    "OperatorAct",
    "OperatorRecord",
    "OutcomeRecord",
    "PolicyRecord",
    "Record",
    "RefusalsRecord",
    "ReleaseRecord",
    "RetentionRecord",
    "ReviewRecord",
    "RevocationRecord",
    "WorkunitRecord",
    "check_record",
    "leaf_of",
    "mentions",
    "parse_record",
    "record_digest",
    "record_leaf",
    "render_record",
    "salted_commitment",
    "task_commitment",
]

MAX_RECORD_BYTES: Final = 16 * 1024
RECORD_PAYLOAD: Final = "application/vnd.stoilo.record+json"


class Mention(NamedTuple):
    """One thing that a record names.

    Attributes:
        kind: of the value.
        value: 64 hex digits; a code for CODE; a role for KEY (``gate``) besides the
            key's digest.
    """

    kind: MentionKind
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
