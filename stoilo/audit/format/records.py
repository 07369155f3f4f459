"""Public records, which leaves name, and what can be found by them. Pure.

A record (`stoilo.audit.format.facts`) is a small JSON text of digests and salted
commitments, never names, hosts, nonces, task ids or source. Its bytes are what counts:
nobody re-encodes them. `parse_record` and `check_record` take hostile bytes.

    release.record.json   a release's record
    release.tlog-proof    the proof of its leaf, which is the proof's ``extra``

A leaf's epoch is not in its record, so the leaf itself travels with the proof. It proves
nothing alone: it must name the record, and the checkpoint must hold it.
"""

from __future__ import annotations

import contextlib
import dataclasses
import hashlib
import re
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from typing import Final, NamedTuple

import msgspec

from stoilo.audit.format.facts import (
    CodeCount,
    MentionKind,
    NamedDigest,
    OperatorRecord,
    Record,
    RefusalsRecord,
    ReleaseRecord,
    WorkunitRecord,
)
from stoilo.audit.format.merkle import leaf_hash, root
from stoilo.audit.format.policy import LogPolicy
from stoilo.audit.format.proof import (
    Leaf,
    ProvenLeaf,
    check_proof,
    parse_leaf,
    parse_proof,
    render_leaf,
    render_proof,
)
from stoilo.core.digests import Digest, Domain, check_digest, domain_digest
from stoilo.core.errors import TrustError
from stoilo.core.signatures import pae, parse_strict_json

MAX_RECORD_BYTES: Final = 16 * 1024
RECORD_PAYLOAD: Final = "application/vnd.stoilo.record+json"


class Mention(NamedTuple):
    """One thing that a record names."""

    kind: MentionKind  # of the value
    # 64 hex digits; a code for CODE; a role for KEY (``gate``) besides the key's digest
    value: str


_VALUES: Final = {
    MentionKind.COMMITMENT: re.compile(r"[0-9a-f]{64}"),
    MentionKind.DIGEST: re.compile(r"[0-9a-f]{64}"),
    MentionKind.CODE: re.compile(r"STO-[A-Z][0-9]{3}"),
    MentionKind.KEY: re.compile(r"[A-Za-z0-9_.:/+-]{1,128}"),
}


def parse_mention(kind: str, value: str) -> Mention | None:
    """Return what a user asks for by two words, None when it is nothing of that form."""
    if kind not in _VALUES or not _VALUES[MentionKind(kind)].fullmatch(value):
        return None
    return Mention(MentionKind(kind), value)


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
        TrustError: ``STO-L010`` when the record would be refused by `parse_record`.
    """
    data = msgspec.json.encode(record)
    try:  # the bytes are our own: the fast parser has one meaning for them
        same = _reader().decode(data) == record
    except msgspec.ValidationError as error:
        raise TrustError("STO-L010", f"a record cannot be written: {error}") from error
    if not same or len(data) > MAX_RECORD_BYTES:
        raise TrustError("STO-L010", "a record would not be read as it was written")
    return data


@cache
def _reader() -> msgspec.json.Decoder[Record]:
    """Return the fast parser, made once: making it costs more than reading a record."""
    return msgspec.json.Decoder(Record)


def parse_record(data: bytes) -> Record:
    """Parse a hostile record, at most `MAX_RECORD_BYTES`; raises ``STO-L010``."""
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
        raise TrustError("STO-L010", f"not a record: {error}") from error
    return record


def record_digest(data: bytes) -> Digest:
    """Return the digest by which leaves name a record: SHA-256 of its DSSE PAE."""
    return Digest(hashlib.sha256(pae(RECORD_PAYLOAD, data)).hexdigest())


def record_leaf(data: bytes, epoch: str) -> bytes:
    """Return the leaf that names the record `data`; raises ``STO-L010``."""
    return leaf_of(parse_record(data), data, epoch)


def leaf_of(record: Record, data: bytes, epoch: str) -> bytes:
    """Return the leaf of `record`, whose bytes are `data`; raises ``STO-L010``."""
    digest = record_digest(data)
    if isinstance(record, RefusalsRecord):
        count, batch_root = record.count, Digest(record.root)
        leaf = Leaf(record.kind, digest, epoch, record.time, count, batch_root)
    else:
        leaf = Leaf(record.kind, digest, epoch, record.time)
    return render_leaf(leaf)


def check_record(leaf: Leaf, data: bytes) -> Record:
    """Return the hostile record `data` if it is the one that `leaf` names.

    Raises:
        TrustError: ``STO-L010`` not a record, ``STO-L141`` not this leaf's.
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


# The fields by which records can be found; a name means the same in each of them.
_FOUND_BY: Final = {
    MentionKind.COMMITMENT: "task submitter validator arguments blobs reviews review "
    "source result subject",
    MentionKind.DIGEST: "admission_leaf level_digest libraries policy_digest language_digest "
    "flavor flavors file digest digests archives metadata parts transcript offline "
    "published versions",
    MentionKind.CODE: "code codes",
    MentionKind.KEY: "key role reviewer issuer",
}
_KIND_OF: Final = {
    name: kind for kind, names in _FOUND_BY.items() for name in names.split()
}


@cache
def _named(record: type[Record]) -> tuple[tuple[str, MentionKind], ...]:
    """Return the fields of a kind of record that it can be found by."""
    fields = [name for name in record.__struct_fields__ if name in _KIND_OF]
    if record is OperatorRecord:  # its role is a token's, not a key's
        fields.remove("role")
    return tuple((name, _KIND_OF[name]) for name in fields)


def mentions(record: Record) -> frozenset[Mention]:
    """Return everything by which `record` can be searched and watched."""
    public = isinstance(record, WorkunitRecord) and record.public_source
    return frozenset(
        Mention(MentionKind.DIGEST if public and field == "source" else kind, value)
        for field, kind in _named(type(record))
        for value in _values(getattr(record, field))
    )


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


def refusals_root(refused: Sequence[Digest]) -> Digest:
    """Return the Merkle root (RFC 6962) over refused submissions' commitments, hex."""
    hashes = [leaf_hash(bytes.fromhex(check_digest(one))) for one in refused]
    return Digest(root(hashes).hex())


RELEASE_RECORD_FILE: Final = "release.record.json"
RELEASE_PROOF_FILE: Final = "release.tlog-proof"


@dataclass(frozen=True, slots=True)
class LoggedRelease:
    """A release as the log tells of it, and where."""

    record: ReleaseRecord
    proven: ProvenLeaf


def render_release_proof(proof: bytes, leaf: bytes) -> bytes:
    """Return the log's own `proof` with the bytes of its leaf; raises ``STO-L010``."""
    return render_proof(dataclasses.replace(parse_proof(proof), extra=leaf))


def check_release_proof(
    record: bytes, proof: bytes, policy: LogPolicy
) -> LoggedRelease:
    """Return what the log that `policy` trusts says of a release.

    Raises:
        TrustError: ``STO-L141`` when record, leaf and proof are not of one release or
            not in their one written form, else the log's codes.
    """
    parsed = parse_proof(proof)
    if render_proof(parsed) != proof:
        raise TrustError("STO-L141", "the release's log proof has another form")
    leaf = parse_leaf(parsed.extra)
    if render_leaf(leaf) != parsed.extra:
        raise TrustError("STO-L141", "the leaf of the release has another form")
    found = check_record(leaf, record)
    if not isinstance(found, ReleaseRecord):
        raise TrustError("STO-L141", f"the leaf is of a {found.kind}, not a release")
    return LoggedRelease(found, check_proof(proof, parsed.extra, policy))
