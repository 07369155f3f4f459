"""What gate keys sign and the log names, byte for byte: admissions and revocations.

An admission is an in-toto Statement v1 with a predicate of ours (design §1.4), one attempt's
permission. A revocation says what a project withdrew since its last offline release: the
offline list (TUF role ``revocation``) and the newest statement hold together.
The bytes that `render_*` makes are logged, signed and parsed; nobody encodes them again.
Trust: `parse_*` gets bytes whose signature was verified, and still treats them as hostile,
because the key may be stolen. Source: in-toto/attestation spec/v1/statement.md.
"""

from __future__ import annotations

import functools
import hashlib
import secrets
from collections.abc import Callable
from dataclasses import fields
from operator import attrgetter
from typing import Annotated, Final, Literal

import msgspec

from stoilo.core.digests import Digest
from stoilo.core.errors import TrustError
from stoilo.core.signatures import IN_TOTO_PAYLOAD, Json, pae, parse_strict_json
from stoilo.core.types import BOUNDS, Redundancy, RunLimits

STATEMENT_TYPE: Final = "https://in-toto.io/Statement/v1"
PREDICATE_TYPE: Final = "urn:stoilo:task-admission:v1"
CODEC_VERSION: Final = 1
MAX_LIFETIME_S: Final = 14 * 24 * 3600
# Extension names this version understands; a statement naming another is refused
LIBRARIES: Final = "libraries"
"""Critical where a statement names any: who does not add them would run something else."""

KNOWN_CRITICAL: Final[frozenset[str]] = frozenset({LIBRARIES})

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
    """One attempt's permission; times are Unix seconds, digests plain SHA-256 hex."""

    origin: _Name  # the project, equal to its log's origin
    nonce: _Nonce  # 32 random bytes, hex; keeps public log entries unguessable
    task_id: _TaskId  # the task
    attempt: Annotated[int, msgspec.Meta(ge=1, le=1000)]  # counts from 1
    entry: _Entry  # name in the task module, called with one dict
    # 0 for one call, n for a list of n calls
    map_items: Annotated[int, msgspec.Meta(ge=0, le=BOUNDS.map_items)]
    task_module: _Sha256  # digest of the source the volunteer runs
    validator_module: _Sha256  # digest of the source that stays on the server
    arguments: _Sha256  # digest of the encoded arguments
    # digests, in the order that the arguments refer to them
    blobs: Annotated[
        tuple[_Sha256, ...], msgspec.Meta(max_length=BOUNDS.blobs_per_task)
    ]
    flavor: _Sha256  # id (SHA-256) of the flavor manifest
    level: _Name  # name of the level
    level_digest: _Sha256  # digest of the level's file (domain-separated)
    policy_digest: _Sha256  # digest of the policy that admitted (domain-separated)
    language_digest: _Sha256  # digest of the language layer's version
    # minor version, for example `3.11`
    python: Annotated[str, msgspec.Meta(pattern=r"\A3\.[0-9]{1,2}\Z")]
    codec: Annotated[int, msgspec.Meta(ge=1, le=255)]  # version of the value codec
    limits: RunLimits  # what the run may use
    redundancy: Redundancy  # how many copies, how many must agree
    seed: _Nonce  # 32 bytes, hex, for the random generators (I7)
    submitter: _Sha256  # salted commitment to the account
    # when the gate admitted; also the leaf's time and the task's `now`
    admitted_at: _Time
    not_after: _Time  # no run starts later
    # number of the gate key's epoch
    epoch: Annotated[int, msgspec.Meta(ge=1, le=2**31)]
    # DSSE envelopes of reviews, as JSON text
    reviewers: Annotated[tuple[_Review, ...], msgspec.Meta(max_length=4)] = ()
    public_source: bool = False  # whether the submitter let the source be published
    # digests of the files of the flavor's libraries (domain-separated) that are added to
    # the level, in the order of their names
    libraries: Annotated[tuple[_Sha256, ...], msgspec.Meta(max_length=32)] = ()
    # what the work is about, for volunteers who choose
    topics: Annotated[tuple[_Name, ...], msgspec.Meta(max_length=8)] = ()
    # extension names a verifier must know or refuse
    critical: Annotated[tuple[_Name, ...], msgspec.Meta(max_length=16)] = ()

    def subjects(self) -> list[Json]:
        """Return name and digest of everything attested, as in-toto lists them."""
        digests = {
            "task_module": self.task_module,
            "validator_module": self.validator_module,
            "arguments": self.arguments,
            **{f"blob/{index}": blob for index, blob in enumerate(self.blobs)},
        }
        return [
            {"name": name, "digest": {"sha256": digest}}
            for name, digest in digests.items()
        ]


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
    return msgspec.json.encode(
        {
            "_type": STATEMENT_TYPE,
            "subject": statement.subjects(),
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
        and KNOWN_CRITICAL.issuperset(read.critical)
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
            of range, STO-A032 an unknown critical extension, STO-A004 another type of
            statement, STO-A011 subjects and predicate disagree.
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
        raise TrustError("STO-A004", "the signed statement is not a task admission")


def _check_critical(predicate: Json) -> None:
    """Refuse extensions that this version does not understand, before other fields."""
    names = predicate.get("critical") if isinstance(predicate, dict) else None
    if not isinstance(names, list):
        raise TrustError("STO-A011", "the statement lacks its list of critical fields")
    unknown = [name for name in names if name not in KNOWN_CRITICAL]
    if unknown:
        raise TrustError(
            "STO-A032",
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
    if document.get("subject") != statement.subjects():
        raise TrustError("STO-A011", "the statement's subjects are not its own inputs")


# Payload type of every public record in the log; this is one of them
RECORD_PAYLOAD: Final = "application/vnd.stoilo.record+json"

# How much older than its admission a workunit's statement may be, s
FRESH_S: Final = 24 * 3600

# Together these three keep a statement within a public record's 16 KiB.
MAX_EPOCHS: Final = 64
MAX_DIGESTS: Final = 160
MAX_FLAVORS: Final = 32

MAX_SEQUENCE: Final = 2**53 - 1
MAX_REVOCATIONS_BYTES: Final = BOUNDS.envelope_bytes + BOUNDS.proof_bytes
_FIRST_LINE: Final = b"stoilo-revocations/v1\n"

_Count = Annotated[int, msgspec.Meta(ge=1, le=2**31)]


class RevocationStatement(
    msgspec.Struct,
    frozen=True,
    forbid_unknown_fields=True,
    tag_field="record",
    tag="revocation",
):
    """What is withdrawn, beyond the offline list that it stands on."""

    # the project, equal to its log's origin
    origin: Annotated[str, msgspec.Meta(pattern=r"\A[A-Za-z0-9_.:/+-]{1,128}\Z")]
    # when it was issued, Unix seconds; also its leaf's time
    time: Annotated[int, msgspec.Meta(ge=1, le=2**40)]
    epoch: _Count  # the newest gate epoch then; also its leaf's epoch
    # `online` adds; `offline` tells the log of a new offline list, and is never signed
    # by an online key
    issuer: Literal["online", "offline"]
    # rises by every statement of one online key; of an offline list, the highest that
    # it has settled
    sequence: Annotated[int, msgspec.Meta(ge=0, le=MAX_SEQUENCE)]
    base: _Count  # version of the TUF role `revocation` that it stands on
    offline: _Sha256  # SHA-256 of that version's `revocation/denied.json`
    # gate epochs withdrawn before their end
    epochs: Annotated[tuple[_Count, ...], msgspec.Meta(max_length=MAX_EPOCHS)]
    min_epoch: _Count  # lowest gate epoch allowed
    # of anything: source, arguments, policy, account commitment, reviewer key
    digests: Annotated[tuple[_Sha256, ...], msgspec.Meta(max_length=MAX_DIGESTS)]
    # ids of withdrawn flavors
    flavors: Annotated[tuple[_Sha256, ...], msgspec.Meta(max_length=MAX_FLAVORS)]

    def covers(self, other: RevocationStatement) -> bool:
        """Whether everything that `other` withdraws is withdrawn here too."""
        return (
            set(self.epochs) >= set(other.epochs)
            and set(self.digests) >= set(other.digests)
            and set(self.flavors) >= set(other.flavors)
            and self.min_epoch >= other.min_epoch
        )


def render_revocation(statement: RevocationStatement) -> bytes:
    """Return the bytes to log and to sign; keep them, they are never made again.

    Raises:
        TrustError: STO-A071 when they would be refused, for example for their number.
    """
    data = msgspec.json.encode(statement)
    parse_revocation(data)
    return data


def parse_revocation(data: bytes) -> RevocationStatement:
    """Parse a statement's bytes (hostile); raises ``STO-A071``."""
    try:
        document = parse_strict_json(
            data, max_bytes=BOUNDS.statement_bytes, what="revocation statement"
        )
        return msgspec.convert(document, type=RevocationStatement)
    except (TrustError, msgspec.ValidationError) as error:
        raise TrustError(
            "STO-A071", f"the revocation statement is malformed: {error}"
        ) from error


def revocation_digest(data: bytes) -> Digest:
    """Return SHA-256 of the PAE of a statement's bytes: its name in the log."""
    return Digest(hashlib.sha256(pae(RECORD_PAYLOAD, data)).hexdigest())


def join_revocations(envelope: bytes, proof: bytes) -> bytes:
    """Return the file that travels with workunits; `envelope` is one line of JSON."""
    return b"%b%b\n%b" % (_FIRST_LINE, envelope, proof)


def split_revocations(data: bytes) -> tuple[bytes, bytes]:
    """Return envelope and proof of a workunit's file (hostile), neither judged.

    Raises:
        TrustError: STO-A071 when it is missing, too large or in another form.
    """
    if not 0 < len(data) <= MAX_REVOCATIONS_BYTES:
        raise TrustError("STO-A071", "the revocations are missing or too large")
    if not data.startswith(_FIRST_LINE):
        raise TrustError("STO-A071", "the file of revocations is in another form")
    envelope, _, proof = data.removeprefix(_FIRST_LINE).partition(b"\n")
    return envelope, proof
