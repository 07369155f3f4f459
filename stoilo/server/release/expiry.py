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
from tuf.api.exceptions import RepositoryError
from tuf.api.metadata import Metadata, Root, Snapshot, Targets, Timestamp

from stoilo.core.errors import StoiloError, TrustError
from stoilo.signer.ceremony.expiry import ExpiryState, RoleExpiry, expiries, worst_state
from stoilo.signer.repository import newest

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from pathlib import Path

    from tuf.api.metadata import Signed

    from stoilo.executor.verifier.targets import TrustedRelease


LOGGER = logging.getLogger(__name__)
STATUS_FORMAT: Final = "stoilo-release-status/1"
DAY_S: Final = 24 * 3600
EPOCHS_SOON_S: Final = 28 * DAY_S
"""From so long before the last gate epoch's end people are told."""

EPOCHS_URGENT_S: Final = 14 * DAY_S
"""The longest life of an admission: from here on admissions are cut short."""

AGAIN_S: Final = DAY_S


class RoleStatus(msgspec.Struct, frozen=True):
    """One role's newest metadata: its version, its end (s since 1970), what that means."""

    role: str
    version: int
    expires: int
    state: ExpiryState


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
    roles: tuple[RoleStatus, ...]
    epochs_until: int
    epochs: ExpiryState
    parts: tuple[PartStatus, ...] = ()


def read_roles(directory: Path, now: int) -> tuple[RoleStatus, ...]:
    """Return what the newest metadata of each role says of itself, verified or not.

    Raises:
        TrustError: STO-K013 when a file cannot be read.
    """
    return tuple(_role_status(one) for one in expiries(_signed(directory), now))


def epochs_until(trust: TrustedRelease, now: int) -> int:
    """Return until when an epoch is open without a gap from now on, s; 0 for none. Pure."""
    until = 0
    # A gap between two epochs ends admissions as surely as the last one's end.
    for epoch in sorted(trust.epochs, key=lambda one: one.not_before):
        usable = (
            epoch.number >= trust.min_epoch and epoch.number not in trust.revoked_epochs
        )
        if usable and epoch.not_before <= max(until, now) < epoch.not_after:
            until = max(until, epoch.not_after)
    return until


def judge_release(
    roles: Sequence[RoleStatus], trust: TrustedRelease | None, trouble: str, now: int
) -> ReleaseStatus:
    """Return the status. Pure.

    Args:
        roles: as `read_roles` gives them.
        trust: the release in force; None where it cannot be verified.
        trouble: code of what keeps it from being verified.
        now: Unix seconds.
    """
    until = 0 if trust is None else epochs_until(trust, now)
    epochs = _epochs_state(until, now)
    known = [RoleExpiry(one.role, one.version, one.expires, one.state) for one in roles]
    states = [*known, RoleExpiry("gate epochs", 0, until, epochs)]
    return ReleaseStatus(
        format=STATUS_FORMAT,
        state="expired" if trouble else worst_state(states),
        time=now,
        origin="" if trust is None else trust.origin,
        development=trust is not None and trust.development,
        trouble=trouble,
        roles=tuple(roles),
        epochs_until=until,
        epochs=epochs,
        parts=() if trust is None else _parts(trust),
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
        roles: tuple[RoleStatus, ...] = ()
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
    """Yield the newest metadata of each role that the directory has."""
    root = newest(directory, "root", Root)
    if root is not None:
        yield "root", root.signed
    targets = newest(directory, "targets", Targets)
    if targets is not None:
        yield "targets", targets.signed
        delegations = targets.signed.delegations
        # Whatever roles a ceremony has delegated; each has an end of its own.
        for name in (delegations.roles or {}) if delegations else {}:
            role = newest(directory, name, Targets)
            if role is not None:
                yield name, role.signed
    snapshot = newest(directory, "snapshot", Snapshot)
    if snapshot is not None:
        yield "snapshot", snapshot.signed
    path = directory / "metadata" / "timestamp.json"
    if path.exists():
        yield "timestamp", _read_timestamp(path)


def _read_timestamp(path: Path) -> Timestamp:
    """Return the timestamp, unverified; raises ``STO-K013``."""
    try:
        return Metadata[Timestamp].from_bytes(path.read_bytes()).signed
    except (RepositoryError, OSError) as error:
        raise TrustError("STO-K013", "timestamp.json cannot be read") from error


def _role_status(one: RoleExpiry) -> RoleStatus:
    return RoleStatus(one.role, one.version, one.expires, one.state)


def _parts(trust: TrustedRelease) -> tuple[PartStatus, ...]:
    return tuple(
        PartStatus(
            part.part, part.platform, part.version, part.serial, part.archive.sha256
        )
        for part in trust.parts
    )


def _epochs_state(until: int, now: int) -> ExpiryState:
    if until <= now:
        return "expired"
    if until - now <= EPOCHS_URGENT_S:
        return "urgent"
    return "soon" if until - now <= EPOCHS_SOON_S else "ok"


def _role_warning(role: RoleStatus) -> str:
    """Return what happens to a role, and who can do something about it."""
    end = _day(role.expires)
    verb = "expired" if role.state == "expired" else "expires"
    if role.role in {"snapshot", "timestamp"}:
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
