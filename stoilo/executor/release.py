"""What a verified release says: epochs, levels, parts, floors, revocations, reviewers.

The records of its files are in `stoilo.executor.targetfiles`; `stoilo.executor.trust`
verifies them up to the root and puts them together here.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from stoilo.audit.format.policy import LogPolicy
from stoilo.core.digests import Digest
from stoilo.core.ed25519 import PublicKey, parse_public_key
from stoilo.core.errors import TrustError
from stoilo.core.levels import Level
from stoilo.executor.targetfiles import (
    PART_FORMAT,
    ArchiveFile,
    BuilderFile,
    BuilderKey,
    EpochFile,
    EpochsFile,
    FloorsFile,
    PartFile,
    PolicyFile,
    ProjectFile,
    ReviewerFile,
    ReviewerKey,
    RevocationFile,
    read_target,
)

__all__ = [
    "PART_FORMAT",
    "ArchiveFile",
    "BuilderFile",
    "BuilderKey",
    "EpochFile",
    "EpochsFile",
    "FloorsFile",
    "GateEpoch",
    "InstalledRelease",
    "PartFile",
    "PolicyFile",
    "ProjectFile",
    "Reviewer",
    "ReviewerFile",
    "ReviewerKey",
    "RevocationFile",
    "TrustedRelease",
    "read_epoch",
    "read_target",
]


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
class Reviewer:
    """A reviewer as the verifier knows him; see `ReviewerKey`."""

    key: PublicKey
    name: str = ""
    accounts: frozenset[str] = frozenset()


@dataclass(frozen=True, slots=True)
class InstalledRelease:
    """What this executor's own package holds.

    Attributes:
        levels: also older ones of the same name, if it still has them.
        language_digest: of its language layer.
        python: the minor version that it runs.
        languages: digests of older language layers whose sources this one still runs.
    """

    levels: tuple[Level, ...]
    language_digest: str
    python: str = "3.11"
    languages: tuple[str, ...] = ()

    def runs(self, language: str) -> bool:
        """Whether a source that language layer `language` let in may run here."""
        return language == self.language_digest or language in self.languages


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
        levels: the levels both certified and installed here; of one name the newest
            certified comes first.
        languages: the language layers both certified and run here.
        installed_language: the one that this executor has.
        python: the minor version that this executor runs.
        policies: accepted policy digests; empty when the release lists none.
        denied: withdrawn digests of any kind.
        revoked_epochs: epochs withdrawn before their end.
        min_epoch: lowest epoch allowed.
        reviewers: those whose reviews count.
        reviewed: policy digest → levels whose tasks need a review under it.
        withdrawn_flavors: ids of flavors that must not run any more.
        revocation_version: version of the offline revocation role.
        revocation_digest: SHA-256 of its file.
        revocation_keys: those who may add to it online.
        revocations_settled: sequence number up to which online additions are settled.
        rehearsal: whether the root is marked as one of a rehearsal.
        parts: launcher, verifier and flavors of the release, by platform; empty where
            none was published (development).
        floors: the oldest parts that may still work.
        builders: who attests builds.
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
    reviewers: tuple[Reviewer, ...]
    reviewed: Mapping[str, frozenset[str]]
    withdrawn_flavors: frozenset[str]
    revocation_version: int
    revocation_digest: Digest
    revocation_keys: tuple[PublicKey, ...]
    revocations_settled: int
    rehearsal: bool = False
    parts: tuple[PartFile, ...] = ()
    floors: FloorsFile = field(default_factory=FloorsFile)
    builders: BuilderFile = field(default_factory=BuilderFile)

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

    def needs_review(self, policy_digest: str, level: str) -> bool:
        """Whether the signed policy wants a reviewer's signature at `level`."""
        return level in self.reviewed.get(policy_digest, frozenset())

    def level(self, name: str, digest: str = "") -> Level | None:
        """Return the held level called `name`, the newest unless `digest` names one."""
        named = [level for level in self.levels if level.name == name]
        exact = [level for level in named if level.digest == digest]
        return next(iter(exact or named), None)

    def part(self, name: str, platform: str) -> PartFile | None:
        """Return the record of part `name` for `platform`, None without one."""
        return next(
            (
                part
                for part in self.parts
                if (part.part, part.platform) == (name, platform)
            ),
            None,
        )

    def flavor_part(self, flavor: str, platform: str) -> PartFile | None:
        """Return the record of the flavor whose manifest is `flavor` (SHA-256)."""
        return next(
            (
                part
                for part in self.parts
                if flavor and (part.flavor, part.platform) == (flavor, platform)
            ),
            None,
        )

    def floor(self, name: str) -> int:
        """Return the lowest serial of part `name` that may still work, at least 1."""
        if name == "verifier":
            return self.floors.verifier
        return self.floors.serials.get(name, 1)


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
