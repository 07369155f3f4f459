"""How a release stands: roles, their keys, what ends when. For people, offline."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import msgspec

from stoilo.executor.verifier.targets import ProjectFile, read_target
from stoilo.executor.verifier.trust import PROJECT_FILE
from stoilo.signer.ceremony.base_release import BaseRelease, open_published
from stoilo.signer.ceremony.content_checks import open_until, release_parts
from stoilo.signer.ceremony.expiry import ExpiryState, RoleExpiry, expiries, worst_state
from stoilo.signer.ceremony.folder import Ceremony, read_folder
from stoilo.signer.ceremony.key_holders import Person, RoleSet, role_set
from stoilo.signer.ceremony.metadata import open_targets
from stoilo.signer.ceremony.proposal import Proposal
from stoilo.signer.ceremony.requests import find_release
from stoilo.signer.ceremony.signatures import quorums
from stoilo.signer.roles import DAY_S, DELEGATED, ceremony_bounds, role_limits


class RoleState(msgspec.Struct, frozen=True):
    """One role; `expires` in Unix seconds."""

    role: str
    version: int
    expires: int
    state: ExpiryState
    threshold: int
    keys: tuple[Person, ...]


class ReleaseState(msgspec.Struct, frozen=True):
    """A release, and what of it ends; `signed` is of a ceremony's folder."""

    origin: str
    state: ExpiryState
    roles: tuple[RoleState, ...]
    epochs_until: int
    parts: tuple[str, ...]
    warnings: tuple[str, ...]
    signed: tuple[str, ...] = ()


def read_state(directory: Path, now: int) -> ReleaseState:
    """Return how the release in `directory`, or below a ceremony, stands at `now`.

    Raises:
        UsageError: ``STO-K052`` when there is none.
        TrustError: when it does not hold.
    """
    if (directory / "ceremony.json").exists():
        ceremony = read_folder(directory)
        return judge_ceremony(ceremony, now)
    return judge_state(open_published(find_release(directory)), now)


def judge_ceremony(ceremony: Ceremony, now: int) -> ReleaseState:
    """Return how the release below a ceremony stands, and who has signed the ceremony."""
    proposal = ceremony.proposal
    signed = tuple(_signatures(proposal))
    if proposal.base is None:
        return ReleaseState(ceremony.about.origin, "ok", (), 0, (), (), signed)
    return msgspec.structs.replace(judge_state(proposal.base, now), signed=signed)


def judge_state(current: BaseRelease, now: int) -> ReleaseState:
    """Return how a release stands at `now`, Unix seconds. Pure."""
    proposal = Proposal(current)
    found = expiries(current.signed(), now)
    until = open_until(proposal, now)
    gate = _epochs_state(until, now)
    # Without an open epoch nothing is admitted, however fresh the metadata is.
    state = max(worst_state(found), gate, key=("ok", "soon", "urgent", "expired").index)
    project = current.target(PROJECT_FILE)
    return ReleaseState(
        origin="" if project is None else _origin(project),
        state=state,
        roles=tuple(_role_state(current, one) for one in found),
        epochs_until=until,
        parts=tuple(
            f"{part.part} {part.platform}: {part.version}, serial {part.serial}, "
            f"{part.archive.size:,} bytes"
            for part in release_parts(proposal)
        ),
        warnings=tuple(_warnings(found, gate)),
    )


def _epochs_state(until: int, now: int) -> ExpiryState:
    """Return what the last gate epoch's end means."""
    bounds = ceremony_bounds()
    days = (until - now) / DAY_S
    if days <= 0:
        return "expired"
    if days <= bounds.epochs_urgent_days:
        return "urgent"
    return "soon" if days <= bounds.epochs_warn_days else "ok"


def _origin(project: bytes) -> str:
    return read_target(project, ProjectFile, PROJECT_FILE).origin


def _role_state(current: BaseRelease, one: RoleExpiry) -> RoleState:
    keys = _keys(current, one.role)
    people = tuple(holder.person for holder in keys.holders)
    return RoleState(
        one.role, one.version, one.expires, one.state, keys.threshold, people
    )


def _keys(current: BaseRelease, role: str) -> RoleSet:
    if role in DELEGATED:
        return role_set(open_targets(current.targets).signed, role)
    return role_set(current.root, role)


def _warnings(found: tuple[RoleExpiry, ...], gate: ExpiryState) -> Iterator[str]:
    for one in found:
        if one.state == "ok":
            continue
        online = role_limits(one.role).signs == "online"
        who = "start the server: its keys sign it" if online else "its people sign it"
        how = "" if online else f": stoilo release request --renew {one.role}"
        yield f"{one.role} is {one.state}; {who}{how}"
    if gate != "ok":
        yield (
            f"gate epochs are {gate}; stoilo release online-keys on the server, then "
            "stoilo release request --online FILE"
        )


def _signatures(proposal: Proposal) -> Iterator[str]:
    for file in proposal.metadata:
        for quorum in quorums(proposal, file):
            names = ", ".join(one.name for one in quorum.signed) or "nobody"
            yield (
                f"{file.name} ({quorum.standing}): {len(quorum.signed)} of "
                f"{quorum.threshold}, by {names}"
            )
