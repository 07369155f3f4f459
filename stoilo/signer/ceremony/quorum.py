"""Who must sign what, who has, and who is missing: pure.

Root metadata needs the keys in force and its own (TUF specification §5.3.4, §5.3.5);
targets need the keys that the newest root names, delegated roles those that the newest
targets name.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from tuf.api.metadata import Key, Root, Targets

from stoilo.signer.ceremony.holders import KeyHolder, holder_of
from stoilo.signer.ceremony.metadata import RoleFile, open_root, open_targets
from stoilo.signer.ceremony.proposal import Proposal
from stoilo.signer.ceremony.rolekeys import role_keys
from stoilo.signer.roles import DELEGATED

__all__ = ["Quorum", "authorities", "quorums", "stray_signatures"]

Standing = Literal["in force", "proposed"]


@dataclass(frozen=True, slots=True)
class Quorum:
    """One set of keys that a metadata file needs.

    Attributes:
        role: whose metadata.
        standing: whether these keys are those in force, or those of this proposal.
        threshold: how many must sign.
        signed: whose signatures verify.
        missing: whose do not, or are not there.
    """

    role: str
    standing: Standing
    threshold: int
    signed: tuple[KeyHolder, ...]
    missing: tuple[KeyHolder, ...]

    @property
    def is_met(self) -> bool:
        """Whether enough distinct keys have signed."""
        return len({holder.key.raw for holder in self.signed}) >= self.threshold


def authorities(
    proposal: Proposal, role: str
) -> tuple[tuple[Standing, Root | Targets], ...]:
    """Return whose word says which keys sign `role`."""
    if role in DELEGATED:
        return _one(proposal, "targets")
    if role != "root":
        return _one(proposal, "root")
    known = None if proposal.base is None else proposal.base.role("root")
    found: list[tuple[Standing, Root | Targets]] = []
    if known is not None:
        found.append(("in force", open_root(known).signed))
    own = proposal.role("root")
    if own is not None:
        found.append(("proposed", open_root(own).signed))
    return tuple(found)


def _one(proposal: Proposal, owner: str) -> tuple[tuple[Standing, Root | Targets], ...]:
    file = proposal.newest(owner)
    if file is None:
        return ()
    opened = open_root(file).signed if owner == "root" else open_targets(file).signed
    return (("proposed" if proposal.role(owner) else "in force", opened),)


def quorums(proposal: Proposal, file: RoleFile) -> tuple[Quorum, ...]:
    """Return every set of keys that `file` needs, with who has signed.

    Raises:
        TrustError: ``STO-K050``; UsageError: ``STO-K054`` when nobody may sign it.
    """
    metadata = open_root(file) if file.role == "root" else open_targets(file)
    found = []
    for standing, owner in authorities(proposal, file.role):
        names = {key.keyid: key for key in role_keys(owner, file.role)}
        result = owner.get_verification_result(
            file.role, metadata.signed_bytes, metadata.signatures
        )
        found.append(
            Quorum(
                role=file.role,
                standing=standing,
                threshold=result.threshold,
                signed=_holders(names, result.signed),
                missing=_holders(names, result.unsigned),
            )
        )
    return tuple(found)


def stray_signatures(proposal: Proposal, file: RoleFile) -> tuple[str, ...]:
    """Return key ids of signatures that verify under none of the keys that may sign."""
    metadata = open_root(file) if file.role == "root" else open_targets(file)
    good: set[str] = set()
    for _, owner in authorities(proposal, file.role):
        result = owner.get_verification_result(
            file.role, metadata.signed_bytes, metadata.signatures
        )
        good.update(result.signed)
    return tuple(sorted(set(metadata.signatures) - good))


def _holders(names: dict[str, Key], found: dict[str, Key]) -> tuple[KeyHolder, ...]:
    holders = (holder_of(names[keyid]) for keyid in found)
    return tuple(sorted(holders, key=lambda one: (one.name, one.key.raw)))
