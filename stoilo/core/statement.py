"""The admission statement: what the gate permits, byte for byte (design §1.4).

An in-toto Statement v1 whose predicate is ours. The bytes made by `render_statement`
are what the log names, the signer signs and the volunteer parses; nobody re-encodes.
Trust: `parse_statement` is called on bytes whose signature has been verified, and still
treats them as hostile, because the gate's key may be stolen.
Source: in-toto/attestation spec/v1/statement.md.
"""

from __future__ import annotations

import functools
import hashlib
import secrets
from collections.abc import Callable
from dataclasses import fields
from operator import attrgetter
from typing import Annotated, Final

import msgspec

from stoilo.core.digests import Digest
from stoilo.core.dsse import IN_TOTO_PAYLOAD, pae
from stoilo.core.errors import TrustError
from stoilo.core.limits import BOUNDS, RunLimits
from stoilo.core.strict_json import Json, parse_strict_json
from stoilo.core.types import Redundancy


STATEMENT_TYPE: Final = "https://in-toto.io/Statement/v1"
PREDICATE_TYPE: Final = "urn:stoilo:task-admission:v1"
CODEC_VERSION: Final = 1
MAX_LIFETIME_S: Final = 14 * 24 * 3600
KNOWN_CRITICAL: Final[frozenset[str]] = frozenset()
"""Extension names this version understands; a statement naming another is refused."""

_Sha256 = Annotated[str, msgspec.Meta(pattern=r"\A[0-9a-f]{64}\Z")]
_Nonce = Annotated[str, msgspec.Meta(pattern=r"\A[0-9a-f]{64}\Z")]
_Name = Annotated[str, msgspec.Meta(pattern=r"\A[A-Za-z0-9_.:/+-]{1,128}\Z")]
_TaskId = Annotated[str, msgspec.Meta(pattern=r"\A[A-Za-z0-9_-]{1,64}\Z")]
_Entry = Annotated[str, msgspec.Meta(min_length=1, max_length=BOUNDS.name_chars)]
_Time = Annotated[int, msgspec.Meta(ge=1, le=2**40)]
_Review = Annotated[str, msgspec.Meta(max_length=8 * 1024)]
_MAX_AMOUNT: Final = 2**53
_NAMES: Final[dict[type, tuple[str, ...]]] = {
    record: tuple(field.name for field in fields(record))
    for record in (RunLimits, Redundancy)
}
_AMOUNTS: Final[dict[type, Callable[[object], tuple[int, ...]]]] = {
    record: attrgetter(*names) for record, names in _NAMES.items()
}


class Statement(msgspec.Struct, frozen=True):
    """One attempt's permission; times are Unix seconds, digests plain SHA-256 hex.

    Attributes:
        origin: the project, equal to its log's origin.
        nonce: 32 random bytes, hex; keeps public log entries unguessable.
        task_id: the task.
        attempt: counts from 1.
        entry: name in the task module, called with one dict.
        map_items: 0 for one call, n for a list of n calls.
        task_module: digest of the source the volunteer runs.
        validator_module: digest of the source that stays on the server.
        arguments: digest of the encoded arguments.
        blobs: digests, in the order that the arguments refer to them.
        flavor: id (SHA-256) of the flavor manifest.
        level: name of the level.
        level_digest: digest of the level's file (domain-separated).
        policy_digest: digest of the policy that admitted (domain-separated).
        language_digest: digest of the language layer's version.
        python: minor version, for example ``3.11``.
        codec: version of the value codec.
        limits: what the run may use.
        redundancy: how many copies, how many must agree.
        seed: 32 bytes, hex, for the random generators (I7).
        reviewers: DSSE envelopes of reviews, as JSON text.
        submitter: salted commitment to the account.
        public_source: whether the submitter let the source be published.
        topics: what the work is about, for volunteers who choose.
        admitted_at: when the gate admitted; also the leaf's time and the task's `now`.
        not_after: no run starts later.
        epoch: number of the gate key's epoch.
        critical: extension names a verifier must know or refuse.
    """

    origin: _Name
    nonce: _Nonce
    task_id: _TaskId
    attempt: Annotated[int, msgspec.Meta(ge=1, le=1000)]
    entry: _Entry
    map_items: Annotated[int, msgspec.Meta(ge=0, le=BOUNDS.map_items)]
    task_module: _Sha256
    validator_module: _Sha256
    arguments: _Sha256
    blobs: Annotated[
        tuple[_Sha256, ...], msgspec.Meta(max_length=BOUNDS.blobs_per_task)
    ]
    flavor: _Sha256
    level: _Name
    level_digest: _Sha256
    policy_digest: _Sha256
    language_digest: _Sha256
    python: Annotated[str, msgspec.Meta(pattern=r"\A3\.[0-9]{1,2}\Z")]
    codec: Annotated[int, msgspec.Meta(ge=1, le=255)]
    limits: RunLimits
    redundancy: Redundancy
    seed: _Nonce
    submitter: _Sha256
    admitted_at: _Time
    not_after: _Time
    epoch: Annotated[int, msgspec.Meta(ge=1, le=2**31)]
    reviewers: Annotated[tuple[_Review, ...], msgspec.Meta(max_length=4)] = ()
    public_source: bool = False
    topics: Annotated[tuple[_Name, ...], msgspec.Meta(max_length=8)] = ()
    critical: Annotated[tuple[_Name, ...], msgspec.Meta(max_length=16)] = ()

    def subjects(self) -> tuple[tuple[str, str], ...]:
        """Return (name, digest) of everything attested, in the order it is listed."""
        blobs = ((f"blob/{index}", blob) for index, blob in enumerate(self.blobs))
        return (
            ("task_module", self.task_module),
            ("validator_module", self.validator_module),
            ("arguments", self.arguments),
            *blobs,
        )


def make_nonce() -> str:
    """Return 32 fresh random bytes as hex: a statement's nonce, and its seed."""
    return secrets.token_hex(32)


def render_statement(statement: Statement) -> bytes:
    """Return the bytes to log and sign; call once per attempt and keep them.

    Raises:
        TrustError: the codes of `parse_statement`, when the statement would be refused.
    """
    data = _encode(statement)
    if not _is_plain(data):
        parse_statement(data)
    return data


class _Document(msgspec.Struct):
    predicate: Statement


@functools.cache
def _own() -> msgspec.json.Decoder[_Document]:
    """Return the fast parser, made by who writes statements; volunteers never do."""
    return msgspec.json.Decoder(_Document)


def _encode(statement: Statement) -> bytes:
    subject = [
        {"name": name, "digest": {"sha256": digest}}
        for name, digest in statement.subjects()
    ]
    return msgspec.json.encode(
        {
            "_type": STATEMENT_TYPE,
            "subject": subject,
            "predicateType": PREDICATE_TYPE,
            "predicate": statement,
        }
    )


def _is_plain(data: bytes) -> bool:
    """Whether these bytes of our own surely pass `parse_statement`; False: ask it.

    Nothing in them is escaped, and reading and writing them again gives the same bytes:
    the strict parser could not see another value in them.
    """
    if b"\\" in data or len(data) > BOUNDS.statement_bytes:
        return False
    try:
        read = _own().decode(data).predicate
    except msgspec.DecodeError:
        return False
    return (
        _encode(read) == data
        and not read.critical
        and read.entry.isidentifier()
        and _in_range(read.limits)
        and _in_range(read.redundancy)
    )


def _in_range(record: RunLimits | Redundancy) -> bool:
    amounts: tuple[int, ...] = _AMOUNTS[type(record)](record)
    return min(amounts) > 0 and max(amounts) <= _MAX_AMOUNT


def statement_digest(payload: bytes) -> Digest:
    """Return SHA-256 of the statement's PAE: its name in the log and in results."""
    return Digest(hashlib.sha256(pae(IN_TOTO_PAYLOAD, payload)).hexdigest())


def parse_statement(data: bytes) -> Statement:
    """Parse statement bytes (hostile).

    Raises:
        TrustError: the codes of `parse_strict_json`; STO-A011 a field is missing or out
            of range, STO-A012 an unknown critical extension, STO-A013 another type of
            statement, STO-A014 subjects and predicate disagree.
    """
    document = parse_strict_json(
        data, max_bytes=BOUNDS.statement_bytes, what="admission statement"
    )
    if not isinstance(document, dict):
        raise TrustError("STO-A011", "the statement is not an object")
    _check_types(document)
    predicate = document.get("predicate")
    _check_critical(predicate)
    statement = _convert(predicate)
    _check_subjects(document, statement)
    return statement


def _check_types(document: dict[str, Json]) -> None:
    """Refuse any statement that is not an admission of version 1."""
    if (
        document.get("_type") != STATEMENT_TYPE
        or document.get("predicateType") != PREDICATE_TYPE
    ):
        raise TrustError("STO-A013", "the signed statement is not a task admission")


def _check_critical(predicate: Json) -> None:
    """Refuse extensions that this version does not understand, before other fields."""
    names = predicate.get("critical") if isinstance(predicate, dict) else None
    if not isinstance(names, list):
        raise TrustError("STO-A011", "the statement lacks its list of critical fields")
    unknown = [name for name in names if name not in KNOWN_CRITICAL]
    if unknown:
        raise TrustError(
            "STO-A012",
            f"the statement needs {str(unknown[0])[:40]!r}, unknown to this version",
            hint="update the executor",
        )


def _convert(predicate: Json) -> Statement:
    """Return the predicate as a checked record."""
    try:
        statement = msgspec.convert(predicate, type=Statement)
    except msgspec.ValidationError as error:
        raise TrustError("STO-A011", f"the statement is malformed: {error}") from error
    assert isinstance(predicate, dict)  # noqa: S101 - convert made a struct of it
    _check_amounts(predicate.get("limits"), statement.limits)
    _check_amounts(predicate.get("redundancy"), statement.redundancy)
    if not statement.entry.isidentifier():
        raise TrustError("STO-A011", "the entry is not a name")
    return statement


def _check_amounts(given: Json, record: RunLimits | Redundancy) -> None:
    """Every limit is written out and positive: a default here would be unsigned."""
    for name in _NAMES[type(record)]:
        if not isinstance(given, dict) or name not in given:
            raise TrustError("STO-A011", f"the statement lacks {name}")
        if not 0 < getattr(record, name) <= _MAX_AMOUNT:
            raise TrustError("STO-A011", f"{name} is out of range")


def _check_subjects(document: dict[str, Json], statement: Statement) -> None:
    """Refuse when the subjects are not exactly what the predicate names."""
    expected: Json = [
        {"name": name, "digest": {"sha256": digest}}
        for name, digest in statement.subjects()
    ]
    if document.get("subject") != expected:
        raise TrustError("STO-A014", "the statement's subjects are not its own inputs")
