"""Who must sign what, who has, and who is missing; one signature more; copies combined.

Root metadata needs the keys in force and its own (TUF specification §5.3.4, §5.3.5);
targets need the keys that the newest root names, delegated roles those that the newest
targets name.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Literal

import msgspec
from securesystemslib.signer import Signer
from tuf.api.exceptions import RepositoryError
from tuf.api.metadata import Key, Root, Targets

from stoilo.core.errors import InternalError, TrustError, UsageError
from stoilo.signer.ceremony.folder import Ceremony, NamedBytes
from stoilo.signer.ceremony.key_holders import KeyHolder, Person, holder_of, role_keys
from stoilo.signer.ceremony.metadata import RoleFile, open_role, open_root, role_file
from stoilo.signer.ceremony.proposal import Proposal
from stoilo.signer.ceremony.transcript import combine_transcripts
from stoilo.signer.offline_keys import OfflineKey
from stoilo.signer.roles import DELEGATED

Standing = Literal["in force", "proposed"]


class Quorum(msgspec.Struct, frozen=True):
    """One set of keys that a metadata file needs."""

    # whether these keys are those in force, or those of this proposal
    standing: Standing
    threshold: int  # how many must sign
    signed: tuple[Person, ...]  # whose signatures verify
    missing: tuple[Person, ...]  # whose do not, or are not there
    met: bool  # whether enough distinct keys have signed


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
    return (
        ("proposed" if proposal.role(owner) else "in force", open_role(file).signed),
    )


def quorums(proposal: Proposal, file: RoleFile) -> tuple[Quorum, ...]:
    """Return every set of keys that `file` needs, with who has signed.

    Raises ``STO-K050``; UsageError: ``STO-K054`` when nobody may sign it.
    """
    metadata = open_role(file)
    found = []
    for standing, owner in authorities(proposal, file.role):
        names = {key.keyid: key for key in role_keys(owner, file.role)}
        result = owner.get_verification_result(
            file.role, metadata.signed_bytes, metadata.signatures
        )
        signed = _holders(names, result.signed)
        found.append(
            Quorum(
                standing,
                result.threshold,
                signed=tuple(one.person for one in signed),
                missing=tuple(one.person for one in _holders(names, result.unsigned)),
                met=len({one.key.raw for one in signed}) >= result.threshold,
            )
        )
    return tuple(found)


def stray_signatures(proposal: Proposal, file: RoleFile) -> tuple[str, ...]:
    """Return key ids of signatures that verify under none of the keys that may sign."""
    metadata = open_role(file)
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


def signable(proposal: Proposal, role: str, keyid: str) -> tuple[RoleFile, ...]:
    """Return the proposed files that a key made for `role` may sign."""
    return tuple(
        file
        for file in proposal.metadata
        if file.role == role
        and any(
            keyid == key.keyid
            for _, owner in authorities(proposal, role)
            for key in role_keys(owner, role)
        )
    )


def sign_proposal(proposal: Proposal, key: OfflineKey) -> Proposal:
    """Return `proposal` with `key`'s signature on everything that it may sign.

    Nothing is checked here but that: what is signed is reviewed before
    (`stoilo.signer.ceremony.review`). Signing twice changes nothing.

    Raises ``STO-K068`` when it may sign nothing.
    """
    signer = key.signer()
    files = signable(proposal, key.role, signer.public_key.keyid)
    # Nothing was asked that this key could answer: its holder should hear it.
    if not files:
        raise UsageError(
            "STO-K068",
            f"the key of {key.name}, made for {key.role}, signs nothing here",
            hint="`stoilo release review` lists whose signatures are missing",
        )
    done = tuple(
        add_signature(file, signer) if file in files else file
        for file in proposal.metadata
    )
    return replace(proposal, metadata=done)


def add_signature(file: RoleFile, *signers: Signer) -> RoleFile:
    """Return `file` with more signatures; those that are there stay."""
    metadata = open_role(file)
    try:
        for signer in signers:
            metadata.sign(signer, append=True)
    except RepositoryError as error:
        raise InternalError("STO-K068", f"{file.name} could not be signed") from error
    return role_file(file.role, metadata)


def combine(ceremonies: Sequence[Ceremony]) -> Ceremony:
    """Return one ceremony with everybody's signatures; the order does not matter.

    Signatures are only gathered here: whether they verify, `review` says.

    Raises ``STO-K069`` for none; ``STO-K069`` when two of them are not copies of one
    proposal, or hold different files under one name; ``STO-K050`` for transcripts of
    others.
    """
    if not ceremonies:
        raise UsageError("STO-K069", "there is nothing to combine")
    first = ceremonies[0]
    for other in ceremonies[1:]:
        if (other.digest, other.about) != (first.digest, first.about):
            raise TrustError(
                "STO-K069",
                f"a copy is of proposal {other.digest[:16]}, another of "
                f"{first.digest[:16]}",
                hint="combine copies of one and the same folder",
            )
    metadata = tuple(
        _united([one.proposal.metadata[place] for one in ceremonies])
        for place in range(len(first.proposal.metadata))
    )
    return replace(
        first,
        proposal=replace(first.proposal, metadata=metadata),
        builds=_together("builds", [one.builds for one in ceremonies]),
        boinc=_together("boinc", [one.boinc for one in ceremonies]),
        online=_together(
            "requests", [(("online.json", one.online),) for one in ceremonies]
        )[0][1],
        transcript=combine_transcripts(one.transcript for one in ceremonies),
    )


def _united(files: Sequence[RoleFile]) -> RoleFile:
    """Return one file with the signatures of all.

    Raises ``STO-K069`` for two signatures by one key: one of them is false.
    """
    opened = [open_role(file) for file in files]
    united = opened[0]
    for other in opened[1:]:
        for keyid, signature in other.signatures.items():
            known = united.signatures.setdefault(keyid, signature)
            # Ed25519 gives one signature for one text: one of the two is
            # false.
            if known.signature != signature.signature:
                raise TrustError(
                    "STO-K069",
                    f"two copies hold different signatures of one key ({keyid[:8]}) on "
                    f"{files[0].name}",
                )
    return role_file(files[0].role, united)


def _together(
    what: str, parts: Sequence[tuple[NamedBytes, ...]]
) -> tuple[NamedBytes, ...]:
    """Return every file of all copies, each name with one content."""
    found: dict[str, bytes] = {}
    for name, data in (row for part in parts for row in part):
        if found.setdefault(name, data) != data:
            raise TrustError("STO-K069", f"two copies hold different {what}/{name}")
    return tuple(sorted(found.items()))
