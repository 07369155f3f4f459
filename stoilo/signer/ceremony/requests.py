"""Beginning a ceremony on a published release, and asking for more in one that is open."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path

from stoilo.core.errors import TrustError, UsageError
from stoilo.executor.verifier.release.targets import ProjectFile, read_target
from stoilo.executor.verifier.release.trust import PROJECT_FILE, REHEARSAL_MARK
from stoilo.signer.ceremony.changes import Changes
from stoilo.signer.ceremony.current import CurrentRelease
from stoilo.signer.ceremony.expiry import expiries
from stoilo.signer.ceremony.folder import Ceremony, CeremonyFile, NamedBytes
from stoilo.signer.ceremony.proposal import Proposal, amend_proposal
from stoilo.signer.ceremony.reading import open_published
from stoilo.signer.roles import OFFLINE

__all__ = ["add_builds", "ask_for", "begin_on", "find_release", "roles_ending"]


def find_release(directory: Path) -> Path:
    """Return the release directory in `directory`: itself, or a server's ``DIR/keys``.

    Raises:
        UsageError: ``STO-K052`` when neither holds release metadata.
    """
    for place in (directory, directory / "keys"):
        if (place / "metadata").is_dir():
            return place
    raise UsageError(
        "STO-K052",
        f"there is no release in {directory.name}",
        hint="give a release directory, or the data directory of `stoilo up`",
    )


def begin_on(
    directory: Path, now: int, *, note: str = "", renews_expired: bool = False
) -> Ceremony:
    """Return an empty ceremony on the release in `directory`.

    Args:
        directory: a release directory, or a server's data directory.
        now: Unix seconds.
        note: why, for people.
        renews_expired: say on purpose that the release has run out.

    Raises:
        TrustError: ``STO-K052`` when the release does not hold, ``STO-K059`` when it
            has expired and nobody said so.
    """
    current = open_published(find_release(directory))
    project = current.target(PROJECT_FILE)
    if project is None:
        raise TrustError("STO-K052", f"the release has no {PROJECT_FILE}")
    _refuse_expired(current, now, renews_expired=renews_expired)
    about = CeremonyFile(
        origin=read_target(project, ProjectFile, PROJECT_FILE).origin,
        rehearsal=REHEARSAL_MARK in current.root.unrecognized_fields,
        created=now,
        note=note,
        base=current.digest,
        renews_expired=renews_expired,
    )
    return Ceremony(about, Proposal(current))


def ask_for(ceremony: Ceremony, changes: Changes, now: int) -> Ceremony:
    """Return the ceremony with more changes; raises as `amend_proposal`."""
    return replace(ceremony, proposal=amend_proposal(ceremony.proposal, changes, now))


def add_builds(ceremony: Ceremony, builds: Iterable[NamedBytes]) -> Ceremony:
    """Return the ceremony with more attestations."""
    known = dict(ceremony.builds) | dict(builds)
    return replace(ceremony, builds=tuple(sorted(known.items())))


def roles_ending(current: CurrentRelease, now: int) -> tuple[str, ...]:
    """Return the offline roles whose metadata ends soon, or has ended."""
    return tuple(
        one.role
        for one in expiries(current.signed(), now)
        if one.state != "ok" and one.role in OFFLINE
    )


def _refuse_expired(current: CurrentRelease, now: int, *, renews_expired: bool) -> None:
    """Refuse a copy that may be an old one."""
    found = {one.role: one for one in expiries(current.signed(), now)}
    for role in (*OFFLINE, "timestamp"):
        known = found.get(role)
        if not renews_expired and (known is None or known.state == "expired"):
            what = "is not there" if known is None else "has expired"
            raise TrustError(
                "STO-K059",
                f"{role} of the release {what}",
                hint="start the server, which signs its timestamp, and copy again; if "
                "it has really run out, add --renew-expired",
            )
