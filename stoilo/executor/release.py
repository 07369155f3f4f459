"""The typed contents of a release's targets: epochs, revocations, policies, reviewers.

Each is a small JSON file named by TUF metadata that the project's offline keys signed (or,
for revocations and policies, a role they delegated). The bytes have been verified when
they come here; they are read strictly all the same, because a typing error in a ceremony
must not widen anything.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, TypeVar

import msgspec

from stoilo.audit.policy import LogPolicy
from stoilo.core.ed25519 import PublicKey, parse_public_key
from stoilo.core.errors import TrustError
from stoilo.core.levels import Level
from stoilo.core.limits import BOUNDS
from stoilo.core.strictjson import parse_strict_json

__all__ = [
    "EpochFile",
    "GateEpoch",
    "InstalledRelease",
    "PolicyFile",
    "ProjectFile",
    "ReviewerFile",
    "RevocationFile",
    "TrustedRelease",
    "read_epoch",
    "read_target",
]

MAX_EPOCHS = 16

_Digest = Annotated[str, msgspec.Meta(pattern=r"\A[0-9a-f]{64}\Z")]
_Count = Annotated[int, msgspec.Meta(ge=1, le=2**31)]
_Time = Annotated[int, msgspec.Meta(ge=1, le=2**40)]


class ProjectFile(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """``project.json``: what the release holds.

    Attributes:
        origin: the project's name, equal to its log's origin.
        epochs: numbers of the certified gate epochs.
        levels: name of each level → digest of its file.
        languages: digests of the language layers that may be admitted.
    """

    origin: Annotated[str, msgspec.Meta(min_length=1, max_length=128)]
    epochs: Annotated[tuple[_Count, ...], msgspec.Meta(max_length=MAX_EPOCHS)]
    levels: dict[str, _Digest]
    languages: tuple[_Digest, ...]


class EpochFile(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """``gate/<epoch>.json``: keys (hex), their window (Unix seconds) and rate."""

    epoch: _Count
    keys: Annotated[tuple[_Digest, ...], msgspec.Meta(min_length=1, max_length=8)]
    threshold: _Count
    not_before: _Time
    not_after: _Time
    max_per_minute: _Count


class RevocationFile(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """``revocation/denied.json``: withdrawn digests and epochs, lowest epoch allowed."""

    digests: tuple[_Digest, ...] = ()
    epochs: tuple[_Count, ...] = ()
    min_epoch: _Count = 1


class PolicyFile(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """``policy/accepted.json``: digests of the policies in force; empty: not listed."""

    digests: tuple[_Digest, ...] = ()


class ReviewerFile(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """``reviewers.json``: public keys, hex, of those whose reviews count."""

    keys: tuple[_Digest, ...] = ()


@dataclass(frozen=True, slots=True)
class GateEpoch:
    """One certified life of the gate's key; times in Unix seconds."""

    number: int
    keys: tuple[PublicKey, ...]
    threshold: int
    not_before: int
    not_after: int
    max_per_minute: int

    def holds(self, admitted_at: int, not_after: int) -> bool:
        """Whether an admission's life lies inside the window."""
        return self.not_before <= admitted_at <= not_after <= self.not_after


@dataclass(frozen=True, slots=True)
class InstalledRelease:
    """What this executor's own package holds: levels and the language layer."""

    levels: tuple[Level, ...]
    language_digest: str
    python: str = "3.11"


@dataclass(frozen=True, slots=True)
class TrustedRelease:
    """Everything the verifier believes, from the root down.

    Attributes:
        origin: the project.
        development: whether the root is marked as one of development.
        root_version: newest root seen.
        targets_version: version of the offline targets role.
        timestamp_version: version of the timestamp seen.
        expires: when the first piece of metadata expires, Unix seconds.
        epochs: certified gate epochs, lowest number first.
        log_policy: logs and witnesses to believe.
        levels: the levels both certified and installed here.
        languages: certified language layers.
        installed_language: the one that this executor has.
        python: the minor version that this executor runs.
        policies: accepted policy digests; empty when the release lists none.
        denied: withdrawn digests of any kind.
        revoked_epochs: epochs withdrawn before their end.
        min_epoch: lowest epoch allowed.
        reviewers: keys whose reviews count.
    """

    origin: str
    development: bool
    root_version: int
    targets_version: int
    timestamp_version: int
    expires: int
    epochs: tuple[GateEpoch, ...]
    log_policy: LogPolicy
    levels: tuple[Level, ...]
    languages: frozenset[str]
    installed_language: str
    python: str
    policies: frozenset[str]
    denied: frozenset[str]
    revoked_epochs: frozenset[int]
    min_epoch: int
    reviewers: tuple[PublicKey, ...]

    def epoch_at(self, now: int, lifetime_s: int) -> GateEpoch | None:
        """Return the newest epoch that holds an admission from `now` for `lifetime_s`."""
        usable = (
            epoch
            for epoch in self.epochs
            if epoch.holds(now, now + lifetime_s)
            and epoch.number >= self.min_epoch
            and epoch.number not in self.revoked_epochs
        )
        return max(usable, key=lambda epoch: epoch.number, default=None)

    def level(self, name: str) -> Level | None:
        """Return the held level called `name`."""
        return next((level for level in self.levels if level.name == name), None)


_File = TypeVar("_File", bound=msgspec.Struct)


def read_target(data: bytes, kind: type[_File], name: str) -> _File:
    """Return target `name`, of verified bytes, as a record; raises ``STO-K013``."""
    document = parse_strict_json(data, max_bytes=BOUNDS.metadata_bytes, what=name)
    try:
        return msgspec.convert(document, type=kind)
    except msgspec.ValidationError as error:
        raise TrustError("STO-K013", f"{name} is malformed: {error}") from error


def read_epoch(data: bytes, number: int) -> GateEpoch:
    """Return gate epoch `number`; raises ``STO-K013``, ``STO-K001``, ``STO-K002``."""
    name = f"gate/{number}.json"
    record = read_target(data, EpochFile, name)
    keys = tuple(parse_public_key(key) for key in record.keys)
    if record.epoch != number or len(set(keys)) != len(keys):
        raise TrustError("STO-K013", f"{name} is for another epoch or repeats a key")
    if record.threshold > len(keys) or record.not_before >= record.not_after:
        raise TrustError("STO-K013", f"{name} has an impossible threshold or window")
    return GateEpoch(
        number=number,
        keys=keys,
        threshold=record.threshold,
        not_before=record.not_before,
        not_after=record.not_after,
        max_per_minute=record.max_per_minute,
    )
