"""How a release stands: which roles end when, what must be done about it, who holds them.

The status is a value, and warnings follow from it. Snapshot and timestamp are renewed at
half of their life: that they come near their end at all means that the signer cannot work.
Everything else is signed by people, who need weeks.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Literal

import msgspec

from stoilo.executor.verifier.targets import PartFile, ProjectFile
from stoilo.executor.verifier.trust import DEVELOPMENT_MARK
from stoilo.signer.ceremony.base_release import BaseRelease, open_published
from stoilo.signer.ceremony.content_checks import admits_until, release_parts
from stoilo.signer.ceremony.key_holders import Person, role_set
from stoilo.signer.ceremony.lists import read_list
from stoilo.signer.ceremony.metadata import open_targets
from stoilo.signer.ceremony.proposal import Proposal
from stoilo.signer.roles import (
    DELEGATED,
    ExpiryState,
    RoleExpiry,
    epochs_state,
    expiries,
    role_limits,
    worst_state,
)


class PartStatus(msgspec.Struct, frozen=True):
    """One published part: which, for what platform, its version, serial and digest."""

    part: str
    platform: str
    version: str
    serial: int
    sha256: str


class ReleaseStatus(msgspec.Struct, frozen=True, kw_only=True):
    """``/release/status.json``: how a project's release stands; all of it public."""

    format: Literal["stoilo-release-status/1"] = "stoilo-release-status/1"
    state: ExpiryState  # the worst of all states
    time: int  # when this was judged, s since 1970
    roles: tuple[RoleExpiry, ...]  # each role's metadata
    epochs_until: int  # end of the last gate epoch that is certified, s; 0 for none
    epochs: ExpiryState  # what that means
    # the project; empty where the release cannot be verified at this moment
    origin: str = ""
    development: bool = False  # whether its root is marked as one of development
    trouble: str = ""  # why the release cannot be relied on now: a code, empty for none
    # launchers, verifiers and flavors of the release
    parts: tuple[PartStatus, ...] = ()


class RoleHolders(msgspec.Struct, frozen=True):
    """Whose keys a role has, and how many of them must sign."""

    threshold: int
    keys: tuple[Person, ...]


def read_roles(directory: Path, now: int) -> tuple[RoleExpiry, ...]:
    """Return how long the newest metadata of each role lives; raises as `open_published`."""
    return expiries(open_published(directory).signed(), now)


def judge_release(
    roles: Sequence[RoleExpiry],
    now: int,
    *,
    epochs_until: int = 0,
    origin: str = "",
    development: bool = False,
    trouble: str = "",
    parts: Iterable[PartFile] = (),
) -> ReleaseStatus:
    """Return the status; see `ReleaseStatus`. Pure."""
    epochs = epochs_state(epochs_until, now)
    # Without an open epoch nothing is admitted, however fresh the metadata is.
    worst = worst_state((epochs, *(one.state for one in roles)))
    return ReleaseStatus(
        state="expired" if trouble else worst,
        time=now,
        roles=tuple(roles),
        epochs_until=epochs_until,
        epochs=epochs,
        origin=origin,
        development=development,
        trouble=trouble,
        parts=tuple(
            PartStatus(
                one.part, one.platform, one.version, one.serial, one.archive.sha256
            )
            for one in parts
        ),
    )


def read_status(base: BaseRelease, now: int) -> ReleaseStatus:
    """Return how a release stands by its files alone, though its timestamp be over."""
    proposal = Proposal(base)
    return judge_release(
        expiries(base.signed(), now),
        now,
        epochs_until=admits_until(proposal, now),
        origin=read_list(base.target, ProjectFile).origin,
        development=DEVELOPMENT_MARK in base.root.unrecognized_fields,
        parts=release_parts(proposal),
    )


def role_holders(base: BaseRelease) -> Mapping[str, RoleHolders]:
    """Return who signs for each role."""
    targets = open_targets(base.targets).signed
    found = {}
    for role, _ in base.signed():
        keys = role_set(targets if role in DELEGATED else base.root, role)
        people = tuple(holder.person for holder in keys.holders)
        found[role] = RoleHolders(keys.threshold, people)
    return found


def warnings_of(status: ReleaseStatus) -> tuple[str, ...]:
    """Return one line for everything that somebody must do, worst first. Pure."""
    lines: list[tuple[ExpiryState, str]] = [
        (one.state, _role_warning(one)) for one in status.roles if one.state != "ok"
    ]
    if status.trouble:
        lines.append(("expired", f"it cannot be relied on [{status.trouble}]"))
    if status.epochs != "ok":
        lines.append((status.epochs, _epoch_warning(status)))
    order = ("expired", "urgent", "soon")
    return tuple(line for state in order for found, line in lines if found == state)


def _role_warning(role: RoleExpiry) -> str:
    """Return what happens to a role, and who can do something about it."""
    verb = "expired" if role.state == "expired" else "expires"
    what = f"{role.role} {verb} {_day(role.expires)}"
    if role_limits(role.role).signs == "online":
        return (
            f"{what}, though a running server's signer renews it: look for its errors; "
            "until it signs again volunteers get no work that they accept"
        )
    return (
        f"{what}: its holders must sign a renewal: "
        f"stoilo release request FOLDER --renew {role.role}"
    )


def _epoch_warning(status: ReleaseStatus) -> str:
    how = "stoilo release online-keys, then certify the new epochs in a ceremony"
    if status.epochs == "expired":
        return f"no gate epoch is open: nothing can be admitted [STO-K024]; {how}"
    return f"the last gate epoch ends {_day(status.epochs_until)}: {how}"


def _day(seconds: int) -> str:
    return f"{datetime.fromtimestamp(seconds, UTC):%Y-%m-%d %H:%M} UTC"
