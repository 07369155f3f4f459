"""Starting on a root that people signed offline: everything is checked, nothing is made up.

A released project's directory holds a root without the development mark and no offline
keys. The server makes no key, no epoch and no metadata for it but snapshot and timestamp,
which its signer process renews. What this server works by must be what the release
certifies; else volunteers would refuse every task, so it refuses to start and says what
the next ceremony has to change.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING

from stoilo.audit.format.note import parse_vkey
from stoilo.audit.witness.client import with_log, without_urls
from stoilo.core.errors import TrustError, UsageError
from stoilo.executor.verifier.trust import DEVELOPMENT_MARK
from stoilo.signer.process.online_keys import awaits_ceremony
from stoilo.signer.release_directory import marks_of
from stoilo.signer.roles import RoleExpiry, role_limits

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

    from stoilo.audit.format.policy import LogPolicy
    from stoilo.executor.verifier.targets import TrustedRelease
    from stoilo.policies.policy import Policy


_ASK = "propose it in the next ceremony: stoilo release request"


MAX_ROOT_BYTES = 1024 * 1024


@dataclass(frozen=True, slots=True)
class ServerTerms:
    """What this server works by, as far as volunteers judge it.

    Attributes:
        origin: the project's name as configured; empty where nobody chose one.
        log_vkey: the log's verifier key, of the signer's own private key.
        witnesses: of the configuration, with addresses, without the log.
        policy: in force here.
    """

    origin: str
    log_vkey: str
    witnesses: LogPolicy
    policy: Policy


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
    """Raise ``STO-K095`` when a role that only people can renew has expired. Pure."""
    for role in roles:
        if role.state == "expired" and role_limits(role.role).signs == "offline":
            ended = datetime.fromtimestamp(role.expires, UTC)
            raise TrustError(
                "STO-K095",
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
