"""How a release stands: roles, their keys, what ends when. For people, offline."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import msgspec

from stoilo.executor.verifier.targets import ProjectFile, read_target
from stoilo.executor.verifier.trust import PROJECT_FILE
from stoilo.signer.ceremony.base_release import BaseRelease, open_published
from stoilo.signer.ceremony.content_checks import admits_until, release_parts
from stoilo.signer.ceremony.key_holders import Person, role_set
from stoilo.signer.ceremony.metadata import open_targets
from stoilo.signer.ceremony.proposal import Proposal
from stoilo.signer.ceremony.requests import find_release
from stoilo.signer.roles import (
    DELEGATED,
    ExpiryState,
    RoleExpiry,
    epochs_state,
    expiries,
    role_limits,
    worst_state,
)


class RoleState(RoleExpiry, frozen=True):
    """One role, and who signs for it."""

    threshold: int
    keys: tuple[Person, ...]


class ReleaseState(msgspec.Struct, frozen=True):
    """A release, and what of it ends; times in Unix seconds."""

    origin: str
    state: ExpiryState
    roles: tuple[RoleState, ...]
    epochs_until: int
    parts: tuple[str, ...]
    warnings: tuple[str, ...]


def read_state(directory: Path, now: int) -> ReleaseState:
    """Return how the release in `directory` stands at `now`, Unix seconds.

    Raises ``STO-K052`` when there is none; TrustError when it does not hold.
    """
    current = open_published(find_release(directory))
    proposal = Proposal(current)
    found = expiries(current.signed(), now)
    until = admits_until(proposal, now)
    gate = epochs_state(until, now)
    project = current.target(PROJECT_FILE)
    return ReleaseState(
        origin=read_target(project, ProjectFile, PROJECT_FILE).origin
        if project
        else "",
        # Without an open epoch nothing is admitted, however fresh the metadata is.
        state=worst_state((gate, *(one.state for one in found))),
        roles=tuple(_role_state(current, one) for one in found),
        epochs_until=until,
        parts=tuple(
            f"{part.part} {part.platform}: {part.version}, serial {part.serial}, "
            f"{part.archive.size:,} bytes"
            for part in release_parts(proposal)
        ),
        warnings=tuple(_warnings(found, gate)),
    )


def _role_state(current: BaseRelease, one: RoleExpiry) -> RoleState:
    owner = (
        open_targets(current.targets).signed if one.role in DELEGATED else current.root
    )
    keys = role_set(owner, one.role)
    people = tuple(holder.person for holder in keys.holders)
    return RoleState(
        one.role, one.version, one.expires, one.state, keys.threshold, people
    )


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
