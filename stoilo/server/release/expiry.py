"""How long a release still holds, and what is said about it before it is too late.

The status is a value, made of what the release's files say, and warnings follow from it.
Snapshot and timestamp are renewed at half of their life: that they come near their end at
all means that the signer cannot work. Everything else is signed by people, who need weeks.
"""

from __future__ import annotations

import logging
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Final

import msgspec
from tuf.api.metadata import Root, Snapshot, Targets, Timestamp

from stoilo.core.errors import StoiloError
from stoilo.signer.repository import newest
from stoilo.signer.roles import (
    DAY_S,
    ExpiryState,
    RoleExpiry,
    epochs_state,
    expiries,
    open_until,
    role_limits,
    worst_state,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from pathlib import Path

    from tuf.api.metadata import Signed

    from stoilo.executor.verifier.targets import TrustedRelease


LOGGER = logging.getLogger(__name__)
STATUS_FORMAT: Final = "stoilo-release-status/1"
AGAIN_S: Final = DAY_S


class PartStatus(msgspec.Struct, frozen=True):
    """One published part: which, for what platform, its version, serial and digest."""

    part: str
    platform: str
    version: str
    serial: int
    sha256: str


class ReleaseStatus(msgspec.Struct, frozen=True):
    """``/release/status.json``: how a project's release stands; all of it public.

    Attributes:
        format: `STATUS_FORMAT`.
        state: the worst of all states.
        time: when this was judged, s since 1970.
        origin: the project; empty where the release cannot be verified at this moment.
        development: whether its root is marked as one of development.
        trouble: why the release cannot be relied on now: a code, empty for none.
        roles: each role's metadata.
        epochs_until: end of the last gate epoch that is certified, s; 0 for none.
        epochs: what that means.
        parts: launchers, verifiers and flavors of the release.
    """

    format: str
    state: ExpiryState
    time: int
    origin: str
    development: bool
    trouble: str
    roles: tuple[RoleExpiry, ...]
    epochs_until: int
    epochs: ExpiryState
    parts: tuple[PartStatus, ...] = ()


def read_roles(directory: Path, now: int) -> tuple[RoleExpiry, ...]:
    """Return what the newest metadata of each role says of itself, verified or not.

    Raises ``STO-K013`` when a file cannot be read.
    """
    return expiries(_signed(directory), now)


def epochs_until(trust: TrustedRelease, now: int) -> int:
    """Return until when an epoch is open without a gap from now on, s; 0 for none. Pure."""
    usable = (
        (epoch.not_before, epoch.not_after)
        for epoch in trust.epochs
        if epoch.number >= trust.min_epoch and epoch.number not in trust.revoked_epochs
    )
    return open_until(usable, now)


def judge_release(
    roles: Sequence[RoleExpiry], trust: TrustedRelease | None, trouble: str, now: int
) -> ReleaseStatus:
    """Return the status. Pure.

    Args:
        roles: as `read_roles` gives them.
        trust: the release in force; None where it cannot be verified.
        trouble: code of what keeps it from being verified.
        now: Unix seconds.
    """
    until = 0 if trust is None else epochs_until(trust, now)
    epochs = epochs_state(until, now)
    worst = worst_state((epochs, *(one.state for one in roles)))
    parts = () if trust is None else trust.parts
    return ReleaseStatus(
        format=STATUS_FORMAT,
        state="expired" if trouble else worst,
        time=now,
        origin="" if trust is None else trust.origin,
        development=trust is not None and trust.development,
        trouble=trouble,
        roles=tuple(roles),
        epochs_until=until,
        epochs=epochs,
        parts=tuple(
            PartStatus(
                one.part, one.platform, one.version, one.serial, one.archive.sha256
            )
            for one in parts
        ),
    )


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


class ReleaseWatch:
    """Tells the operator, when something changes and once a day while it lasts.

    Args:
        directory: ``DIR/keys``.
        trust: the release in force; raises while it cannot be verified.
        clock: seconds since 1970.
        check: raises when the release no longer certifies what the server works by.
    """

    def __init__(
        self,
        directory: Path,
        trust: Callable[[], TrustedRelease],
        clock: Callable[[], int],
        check: Callable[[TrustedRelease], None] = lambda _trust: None,
    ) -> None:
        self._directory = directory
        self._trust = trust
        self._clock = clock
        self._check = check
        self._told: tuple[str, ...] = ()
        self._told_at = 0

    def status(self) -> ReleaseStatus:
        """Return how the release stands now; never raises one of our errors' codes."""
        now, trust, trouble = self._clock(), None, ""
        roles: tuple[RoleExpiry, ...] = ()
        try:
            roles = read_roles(self._directory, now)
            trust = self._trust()
            self._check(trust)
        except StoiloError as error:
            trouble = error.code
        return judge_release(roles, trust, trouble, now)

    def tell(self) -> tuple[str, ...]:
        """Log what is new or a day old; returns the lines that were logged."""
        lines, now = warnings_of(self.status()), self._clock()
        # A warning each ten minutes is one that nobody reads.
        if not lines or (lines == self._told and now - self._told_at < AGAIN_S):
            self._told = lines
            return ()
        for line in lines:
            LOGGER.warning("release: %s", line)
        self._told, self._told_at = lines, now
        return lines


def _signed(directory: Path) -> Iterator[tuple[str, Signed]]:
    targets = newest(directory, "targets", Targets)
    delegations = None if targets is None else targets.signed.delegations
    # Whatever roles a ceremony has delegated; each has an end of its own.
    named = (delegations.roles or {}) if delegations else {}
    found = {
        "root": newest(directory, "root", Root),
        "targets": targets,
        **{name: newest(directory, name, Targets) for name in named},
        "snapshot": newest(directory, "snapshot", Snapshot),
        "timestamp": newest(directory, "timestamp", Timestamp),
    }
    for name, metadata in found.items():
        if metadata is not None:
            yield name, metadata.signed


def _role_warning(role: RoleExpiry) -> str:
    """Return what happens to a role, and who can do something about it."""
    end = _day(role.expires)
    verb = "expired" if role.state == "expired" else "expires"
    if role_limits(role.role).signs == "online":
        return (
            f"{role.role} {verb} {end}, though the signer renews it: look for its errors "
            "above; until it signs again volunteers get no work that they accept"
        )
    return (
        f"{role.role} {verb} {end}: its holders must sign a renewal "
        "(stoilo release request --help)"
    )


def _epoch_warning(status: ReleaseStatus) -> str:
    if status.epochs == "expired":
        return (
            "no gate epoch is open: nothing can be admitted [STO-K096]; "
            "stoilo release online-keys, then certify the new epochs"
        )
    return (
        f"the last gate epoch ends {_day(status.epochs_until)}: stoilo release "
        "online-keys, then certify the new epochs in a ceremony"
    )


def _day(seconds: int) -> str:
    return f"{datetime.fromtimestamp(seconds, UTC):%Y-%m-%d %H:%M} UTC"
