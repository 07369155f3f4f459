"""Does the release certify this server, and how long does it hold? At the start and later.

A released project's directory holds a root without the development mark and no offline
keys. The server makes no key, no epoch and no metadata for it but snapshot and timestamp,
which its signer process renews. What this server works by must be what the release
certifies; else volunteers would refuse every task, so it refuses to start and says what
the next ceremony has to change. What ends while it runs is said before it is too late.
"""

from __future__ import annotations

import logging
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Final

from stoilo.audit.format.note import parse_vkey
from stoilo.audit.witness.client import with_log, without_urls
from stoilo.core.errors import StoiloError, TrustError, UsageError
from stoilo.executor.verifier.trust import DEVELOPMENT_MARK
from stoilo.signer.ceremony.release_status import (
    ReleaseStatus,
    judge_release,
    read_roles,
    warnings_of,
)
from stoilo.signer.process.online_keys import awaits_ceremony
from stoilo.signer.release_pack import marks_of
from stoilo.signer.roles import DAY_S, RoleExpiry, open_until, role_limits

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence
    from pathlib import Path

    from stoilo.audit.format.policy import LogPolicy
    from stoilo.executor.verifier.targets import TrustedRelease
    from stoilo.policies.policy import Policy


_ASK = "propose it in the next ceremony: stoilo release request"


MAX_ROOT_BYTES = 1024 * 1024


@dataclass(frozen=True, slots=True)
class ServerTerms:
    """What this server works by, as far as volunteers judge it."""

    origin: str  # the project's name as configured; empty where nobody chose one
    log_vkey: str  # the log's verifier key, of the signer's own private key
    witnesses: LogPolicy  # of the configuration, with addresses, without the log
    policy: Policy  # in force here


def is_released(directory: Path) -> bool:
    """Whether ``DIR/keys`` holds a root that people signed offline.

    Raises ``STO-K093`` when online keys wait for their ceremony; ``STO-K091`` when a
    released root lies beside offline keys; ``STO-K003``, ``STO-K013``, ``STO-K029``
    when the root cannot be read.
    """
    if awaits_ceremony(directory):
        raise UsageError(
            "STO-K093",
            "this server's keys wait for their ceremony: no release is published yet",
            hint=f"stoilo release publish FOLDER --data {directory.parent}",
        )
    root_file = directory / "root.json"
    if not root_file.exists() or DEVELOPMENT_MARK in marks_of(_read_root(root_file)):
        return False
    # Whoever breaks into the server would hold the project's root.
    if (directory / "offline").exists():
        raise UsageError(
            "STO-K091",
            "offline keys lie beside a released root",
            hint="they must never be on a server: replace them in a ceremony",
        )
    return True


def _read_root(path: Path) -> bytes:
    """Return the root's bytes; public, and perhaps of the signer's user."""
    try:
        with path.open("rb") as file:
            return file.read(MAX_ROOT_BYTES)
    except OSError as error:
        raise TrustError("STO-K029", "root.json cannot be read") from error


def check_offline_roles(roles: Iterable[RoleExpiry]) -> None:
    """Raise ``STO-K011`` when a role that only people can renew has expired. Pure."""
    for role in roles:
        if role.state == "expired" and role_limits(role.role).signs == "offline":
            ended = datetime.fromtimestamp(role.expires, UTC)
            raise TrustError(
                "STO-K011",
                f"the release's {role.role} metadata expired on {ended:%Y-%m-%d %H:%M} UTC",
                hint="its holders must sign a renewal: stoilo release request --help",
            )


def check_certified(trust: TrustedRelease, terms: ServerTerms) -> None:
    """Raise ``STO-K094`` unless the release certifies what the server works by. Pure."""
    if terms.origin not in {"", trust.origin}:
        raise _uncertified(
            f"the release is of {trust.origin!r}, this server is to be {terms.origin!r}",
            "leave --origin out: the release names the project",
        )
    _check_log(trust.log_policy.current, terms)
    digest = terms.policy.digest
    if trust.policies and digest not in trust.policies:
        raise _uncertified(
            f"the policy in force ({digest[:16]}…) is not accepted", _ASK
        )
    if trust.installed_language not in trust.languages:
        raise _uncertified(
            f"this version's language layer ({trust.installed_language[:16]}…) is not named",
            f"start the version of stoilo that was certified, or {_ASK}",
        )
    if not trust.levels:
        raise _uncertified("it names none of this version's levels", _ASK)


def _check_log(policy: LogPolicy, terms: ServerTerms) -> None:
    key = parse_vkey(terms.log_vkey)
    if key not in policy.logs:
        raise _uncertified(f"it does not name this log's key {terms.log_vkey}", _ASK)
    if without_urls(with_log(terms.witnesses, terms.log_vkey)) != policy:
        raise _uncertified(
            f"it demands other witnesses (quorum {policy.quorum!r}) than are configured",
            "give --log-policy FILE with those witnesses and their addresses",
        )


def _uncertified(what: str, hint: str) -> TrustError:
    return TrustError("STO-K094", f"the release differs: {what}", hint=hint)


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
    """Tells the operator, when something changes and once a day while it lasts."""

    def __init__(
        self,
        directory: Path,  # ``DIR/keys``
        # the release in force; raises while it cannot be verified
        trust: Callable[[], TrustedRelease],
        clock: Callable[[], int],  # seconds since 1970
        # raises when the release no longer certifies what the server works by
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
