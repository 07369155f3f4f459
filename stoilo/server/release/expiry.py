"""What is said about a release's end before it is too late, while the server runs."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Final

from stoilo.core.errors import StoiloError
from stoilo.signer.release_status import (
    ReleaseStatus,
    judge_release,
    read_roles,
    warnings_of,
)
from stoilo.signer.roles import DAY_S, RoleExpiry, open_until

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path

    from stoilo.executor.verifier.targets import TrustedRelease


LOGGER = logging.getLogger(__name__)
AGAIN_S: Final = DAY_S


def epochs_until(trust: TrustedRelease, now: int) -> int:
    """Return until when an epoch is open without a gap from now on, s; 0 for none. Pure."""
    usable = (
        (epoch.not_before, epoch.not_after)
        for epoch in trust.epochs
        if epoch.number >= trust.min_epoch and epoch.number not in trust.revoked_epochs
    )
    return open_until(usable, now)


def judge_trusted(
    roles: Sequence[RoleExpiry], trust: TrustedRelease, now: int, trouble: str = ""
) -> ReleaseStatus:
    """Return the status of a release in force. Pure."""
    return judge_release(
        roles,
        now,
        epochs_until=epochs_until(trust, now),
        origin=trust.origin,
        development=trust.development,
        trouble=trouble,
        parts=trust.parts,
    )


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
        if trust is None:
            return judge_release(roles, now, trouble=trouble)
        return judge_trusted(roles, trust, now, trouble)

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
