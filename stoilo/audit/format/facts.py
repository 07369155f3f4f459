"""What each kind of record says: typed, public, and without anything private. Pure.

See `stoilo.audit.format.records` for how records are written, read and found.
"""

from __future__ import annotations

from datetime import UTC, datetime
from enum import StrEnum
from typing import Annotated, ClassVar, Final, Literal

import msgspec

from stoilo.audit.format.proof import LeafKind
from stoilo.core.statement import RevocationStatement
from stoilo.core.types import Redundancy, RunLimits


class MentionKind(StrEnum):
    """How a record can be found again."""

    COMMITMENT = "commitment"
    DIGEST = "digest"
    CODE = "code"
    KEY = "key"

    __hash__ = str.__hash__  # asked a dozen times a record; `Enum`'s own is in Python


_Sha256 = Annotated[str, msgspec.Meta(pattern=r"\A[0-9a-f]{64}\Z")]
_Sha256OrNone = Annotated[str, msgspec.Meta(pattern=r"\A([0-9a-f]{64})?\Z")]
_Name = Annotated[str, msgspec.Meta(pattern=r"\A[A-Za-z0-9_.:/+-]{1,128}\Z")]
_Word = Annotated[str, msgspec.Meta(pattern=r"\A[A-Za-z0-9_.:/+-]{0,64}\Z")]
_Code = Annotated[str, msgspec.Meta(pattern=r"\A(STO-[A-Z][0-9]{3})?\Z")]
_Time = Annotated[int, msgspec.Meta(ge=0, le=2**40)]
_Count = Annotated[int, msgspec.Meta(ge=0, le=2**53)]
_Index = Annotated[int, msgspec.Meta(ge=-1, le=2**62)]
_Digests = Annotated[tuple[_Sha256, ...], msgspec.Meta(max_length=160)]


class NamedDigest(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A digest and what it is of, for example ``language``."""

    name: _Name
    digest: _Sha256


_Named = Annotated[tuple[NamedDigest, ...], msgspec.Meta(max_length=64)]


class _Public(
    msgspec.Struct, frozen=True, forbid_unknown_fields=True, tag_field="record"
):
    """What all records share; `kind` is the kind of its leaf."""

    kind: ClassVar[LeafKind]

    origin: _Name  # of project and log
    time: _Time  # when it happened, POSIX seconds; also the leaf's time


class WorkunitRecord(_Public, frozen=True, tag="workunit"):
    """Explains one admission's leaf to those who do not hold its statement.

    Commitments are salted by the statement's nonce, which the volunteers of the task and
    its researcher hold, so that both can check this record against what they have.
    """

    kind: ClassVar[LeafKind] = LeafKind.WORKUNIT

    # ``issued``, or ``withdrawn`` when no workunit was made of the admission
    state: Literal["issued", "withdrawn"]
    admission: _Count  # place of the admission's leaf
    admission_leaf: _Sha256  # its RFC 6962 leaf hash
    task: _Sha256  # `task_commitment` of the task's id
    attempt: _Count  # counts from 1
    submitter: _Sha256  # salted commitment of the account
    public_source: bool  # whether the submitter chose publication
    source: _Sha256  # digest of the task module where published, else salted
    validator: _Sha256  # salted commitment of the validator module
    arguments: _Sha256  # salted commitment of the arguments' digest
    blobs: _Sha256  # salted commitment of the ordered blobs' digests
    level: _Name
    level_digest: _Sha256  # of the level
    policy_digest: _Sha256  # the policy that admitted
    language_digest: _Sha256  # of the language layer
    flavor: _Sha256  # id of the flavor's manifest
    limits: RunLimits  # what one run may use
    redundancy: Redundancy  # how many results, how many must agree
    epoch: _Count  # number of the gate key's epoch
    admitted_at: _Time  # s
    not_after: _Time  # no run starts later, s
    # size of the checkpoint that the signer saw; 0 when withdrawn before
    checkpoint: _Count = 0
    checkpoint_time: _Time = 0  # newest cosignature under it, s; 0 without witnesses
    # codes of the gate's findings, none of them a refusal
    codes: Annotated[tuple[_Code, ...], msgspec.Meta(max_length=64)] = ()
    # commitments of the reviews it stands on, as their own records give them
    reviews: Annotated[tuple[_Sha256, ...], msgspec.Meta(max_length=4)] = ()
    # digests of the libraries that are added to the level
    libraries: Annotated[tuple[_Sha256, ...], msgspec.Meta(max_length=32)] = ()


class OutcomeRecord(_Public, frozen=True, tag="outcome"):
    """The one final outcome of a task."""

    kind: ClassVar[LeafKind] = LeafKind.RESULT

    task: _Sha256  # `task_commitment` of the task's id
    attempt: _Count  # the attempt that decided
    admission: _Index  # place of that attempt's admission; -1 when it never had one
    state: _Name  # the task's final state
    code: _Code  # why it did not succeed, empty when it did
    result: _Sha256  # salted commitment of the canonical result
    agreeing: _Count = 0  # results that agreed; 0 where none counted


class CodeCount(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """How often a refusal had this code."""

    code: _Code
    count: _Count


class RefusalsRecord(_Public, frozen=True, tag="refusals"):
    """One researcher's refused submissions in one interval."""

    kind: ClassVar[LeafKind] = LeafKind.REFUSALS

    submitter: _Sha256  # salted commitment of the account
    start: _Time  # s, inclusive
    end: _Time  # s, exclusive
    count: _Count  # how many
    root: _Sha256  # Merkle root over the refused submissions' salted commitments
    # why, by code
    codes: Annotated[tuple[CodeCount, ...], msgspec.Meta(max_length=128)] = ()


class ReviewRecord(_Public, frozen=True, tag="review"):
    """A reviewer's word."""

    kind: ClassVar[LeafKind] = LeafKind.REVIEW

    decision: Literal["signed", "refused"]  # what he said
    # digest of his public key; empty for a refusal, which bears no signature
    reviewer: _Sha256OrNone
    # salted commitment of the signed review, or of the refused task module
    review: _Sha256
    source: _Sha256  # salted commitment of the task module
    level: _Word = ""  # for which level
    not_after: _Time = 0  # until when it holds, s; 0 for a refusal
    # commitment of the refused task; empty for a signature, which holds for more
    task: _Sha256OrNone = ""


class KeyRecord(_Public, frozen=True, tag="key"):
    """The birth or death of a key that the project uses."""

    kind: ClassVar[LeafKind] = LeafKind.KEY

    event: Literal["born", "died"]  # ``born`` or ``died``
    # whose key: ``root``, ``gate``, ``log``, ``reviewer``, ``revocation``, …
    role: _Name
    key: _Sha256  # SHA-256 of the public key's bytes
    # SHA-256 of the release file that says so; empty for a death by time
    file: _Sha256OrNone = ""
    name: _Word = ""  # of the file, for example ``gate/2.json``
    # of a death: ``ended``, ``revoked`` or ``removed``
    reason: Literal["", "ended", "revoked", "removed"] = ""
    not_before: _Time = 0  # s, 0 where there is no window
    not_after: _Time = 0  # s, 0 where there is no window


class PolicyRecord(_Public, frozen=True, tag="policy"):
    """A policy comes into force or is retired."""

    kind: ClassVar[LeafKind] = LeafKind.POLICY

    change: Literal["in_force", "retired"]  # what happened to it
    digest: _Sha256  # of the policy
    # digest of the one that it follows; empty for the first
    previous: _Sha256OrNone = ""


class LevelRecord(_Public, frozen=True, tag="level"):
    """A level, or the language layer below all of them, changes."""

    kind: ClassVar[LeafKind] = LeafKind.LEVEL

    change: Literal["in_force", "retired"]  # what happened to it
    name: _Name  # of the level; ``language`` for the language layer
    digest: _Sha256  # of the level as it is now, or was
    previous: _Sha256OrNone = ""  # digest of what it follows; empty for the first


class FlavorRecord(_Public, frozen=True, tag="flavor"):
    """A flavor is released or withdrawn."""

    kind: ClassVar[LeafKind] = LeafKind.FLAVOR

    change: Literal["released", "withdrawn"]  # what happened to it
    name: _Name  # of the flavor
    flavor: _Sha256  # id of its manifest (SHA-256 of the manifest's bytes)
    # digests of the platforms' archives, as far as there are any
    archives: _Digests = ()


class ReleaseRecord(_Public, frozen=True, tag="release"):
    """A release signed offline comes into force, or one whose parts are published.

    Snapshot and timestamp, which the server renews by itself, are not part of it.
    """

    kind: ClassVar[LeafKind] = LeafKind.RELEASE

    root: _Count  # version of the newest root
    targets: _Count  # version of the offline targets role
    # name (``3.targets.json``) and SHA-256 of each offline role's file
    metadata: _Named
    # path (``verifier/x86_64-linux``) and SHA-256 of each archive or program
    parts: _Named = ()
    # SHA-256 of the ceremony's transcript; empty where there is none
    transcript: _Sha256OrNone = ""


class RevocationRecord(RevocationStatement, frozen=True, tag="revocation"):
    """A revocation: the record is the very statement that is signed and travels.

    See `stoilo.core.statement`. The newest of each issuer are in force together.
    """

    kind: ClassVar[LeafKind] = LeafKind.REVOCATION


class RetentionRecord(_Public, frozen=True, tag="retention"):
    """Something was deleted on purpose; leaves and records never are."""

    kind: ClassVar[LeafKind] = LeafKind.RETENTION

    # ``sources``, ``arguments``, ``results`` or ``salts``
    what: Literal["sources", "arguments", "results", "salts"]
    before: _Time  # of tasks that were final before this time, s
    count: _Count  # how many things; nothing else remains of what was private
    published: _Digests = ()  # digests of published sources that are gone
    mark: _Word = ""  # random; keeps equal acts of one second apart


class OperatorAct(StrEnum):
    """What somebody with the operator's rights did."""

    SERVER_STARTED = "server_started"
    SERVER_STOPPED = "server_stopped"
    TOKEN_ISSUED = "token_issued"  # noqa: S105 - an act, not a secret
    TOKEN_REVOKED = "token_revoked"  # noqa: S105 - an act, not a secret
    TASK_CANCELLED = "task_cancelled"
    REVIEWER_ENROLLED = "reviewer_enrolled"
    ACCOUNT_SUSPENDED = "account_suspended"
    ACCOUNT_RESUMED = "account_resumed"
    # its roles, its group, the end of a token; without a subject: what a group may use
    ACCOUNT_CHANGED = "account_changed"


class OperatorRecord(_Public, frozen=True, tag="operator"):
    """An act of the operator."""

    kind: ClassVar[LeafKind] = LeafKind.OPERATOR

    act: OperatorAct  # what was done
    # salted commitment of the account concerned; empty for none
    subject: _Sha256OrNone = ""
    role: _Word = ""  # of the token concerned
    task: _Sha256OrNone = ""  # commitment of the task concerned; empty for none
    until: _Time = 0  # end of what was granted, s; 0 for none
    version: _Word = ""  # of stoilo, for starts and stops
    versions: _Named = ()  # digests of what is in force, for starts and stops
    mark: _Word = ""  # random; keeps equal acts of one second apart


# Fields of records that hold POSIX seconds, 0 for none.
TIME_FIELDS: Final = frozenset(
    {"time", "admitted_at", "not_before", "not_after", "checkpoint_time"}
    | {"start", "end", "before", "until"}
)


def show_time(seconds: int) -> str:
    """Return POSIX seconds as ``2026-11-20 14:31:47 UTC``; past any calendar, a number."""
    try:
        return datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%d %H:%M:%S UTC")
    except (OverflowError, ValueError, OSError):
        return f"{seconds} s since 1970"


Record = (
    WorkunitRecord
    | OutcomeRecord
    | RefusalsRecord
    | ReviewRecord
    | KeyRecord
    | PolicyRecord
    | LevelRecord
    | FlavorRecord
    | ReleaseRecord
    | RevocationRecord
    | RetentionRecord
    | OperatorRecord
)
