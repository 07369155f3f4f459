"""Unsigned metadata from a release and what somebody wants changed: pure.

A proposal is a set of metadata files, each exactly one version above the release that it
builds on, and the new targets that they name. Signatures are added to it later and change
nothing that it says: its digest is over what is signed, and is what people compare.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from stoilo.core.digests import Digest, content_digest
from stoilo.core.errors import TrustError, UsageError
from stoilo.executor.verifier.release.trust import REHEARSAL_MARK
from stoilo.signer.ceremony.changes import Changes, NewTarget, role_of_target
from stoilo.signer.ceremony.current import CurrentRelease
from stoilo.signer.ceremony.draft import Draft
from stoilo.signer.ceremony.holders import RoleSet
from stoilo.signer.ceremony.metadata import (
    RoleFile,
    signatures_of,
    targets_of,
)

__all__ = [
    "Proposal",
    "ReleasePlan",
    "amend_proposal",
    "first_proposal",
    "next_proposal",
]


@dataclass(frozen=True, slots=True)
class ReleasePlan:
    """A project's first release.

    Attributes:
        roles: keys of every role, snapshot and timestamp included.
        put: every target.
        rehearsal: whether the root is one of a staging project.
        now: Unix seconds.
    """

    roles: Mapping[str, RoleSet]
    put: tuple[NewTarget, ...]
    rehearsal: bool
    now: int


@dataclass(frozen=True, slots=True)
class Proposal:
    """Metadata to sign, and the new files that it names.

    Attributes:
        base: the release it builds on, None for a first one.
        metadata: in the order of `OFFLINE`.
        targets: new files, by name.
    """

    base: CurrentRelease | None
    metadata: tuple[RoleFile, ...] = ()
    targets: tuple[NewTarget, ...] = ()

    @property
    def digest(self) -> Digest:
        """What is to be signed, in one digest; signatures do not change it."""
        base = "-" if self.base is None else self.base.digest
        lines = [f"stoilo-proposal/1 {base}\n"]
        lines += [f"{file.name} {file.signed_digest}\n" for file in self.metadata]
        return content_digest("".join(lines).encode())

    @property
    def is_signed(self) -> bool:
        """Whether anybody has signed anything."""
        return any(signatures_of(file) for file in self.metadata)

    def role(self, name: str) -> RoleFile | None:
        """Return the proposed metadata of role `name`, None when it stays."""
        return next((file for file in self.metadata if file.role == name), None)

    def newest(self, name: str) -> RoleFile | None:
        """Return role `name` as it will be: proposed, else as published."""
        known = None if self.base is None else self.base.role(name)
        return self.role(name) or known

    def target(self, name: str) -> bytes | None:
        """Return small target `name` as it will be; None when there will be none.

        Raises:
            TrustError: ``STO-K052`` when it is named, and missing or damaged.
        """
        file = self.newest(role_of_target(name))
        info = None if file is None else targets_of(file).get(name)
        if info is None:
            return None
        for one in self.targets:
            if one.name == name and one.digest == info.hashes["sha256"]:
                return one.content if isinstance(one.content, bytes) else None
        if self.base is not None and self.base.info(name) == info:
            return self.base.target(name)
        raise TrustError("STO-K052", f"target {name} is missing or damaged")


def first_proposal(plan: ReleasePlan) -> Proposal:
    """Return the metadata of a project's first release, unsigned.

    Raises:
        UsageError: ``STO-K053`` for a role without keys, with too few or too many, with
            an impossible threshold, or sharing a key with another role.
    """
    draft = Draft(None, (), (), plan.now)
    draft.start(plan.roles, {REHEARSAL_MARK: True} if plan.rehearsal else {})
    draft.put(plan.put)
    return Proposal(None, *draft.result())


def next_proposal(current: CurrentRelease, changes: Changes, now: int) -> Proposal:
    """Return the metadata that makes `changes` to `current`, unsigned.

    Args:
        current: the published release.
        changes: what is to become different.
        now: Unix seconds; lifetimes begin here.

    Raises:
        UsageError: ``STO-K053`` for keys that do not add up, ``STO-K054`` for a change
            of what is not there.
    """
    return amend_proposal(Proposal(current), changes, now)


def amend_proposal(proposal: Proposal, changes: Changes, now: int) -> Proposal:
    """Return an unsigned proposal with more changes; raises as `next_proposal`.

    Raises:
        UsageError: ``STO-K055`` when somebody has signed already.
    """
    if proposal.is_signed:
        raise UsageError(
            "STO-K055",
            "somebody has signed this proposal already",
            hint="publish it first, or begin another folder and sign that one",
        )
    draft = Draft(proposal.base, proposal.metadata, proposal.targets, now)
    for change in changes.keys:
        draft.change_keys(change)
    draft.put(changes.put)
    for name in changes.drop:
        draft.drop(name)
    for role in changes.renew:
        draft.renew(role)
    return Proposal(proposal.base, *draft.result())
