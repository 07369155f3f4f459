"""Is this published release whole, signed, rebuilt, logged, and nothing beside it?

Two checks in one. A volunteer's own verifier (`executor.verifier`) reads the release
as it would before any work: thresholds, versions, expiry, delegations. And every file is
accounted for, in the one spelling that was signed, so that nobody can change, cut, remove
or add a byte of what is published without being seen.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from stoilo.audit.format.records import LoggedRelease
from stoilo.core.boinc.codesign import BoincPublicKey
from stoilo.core.digests import Digest, content_digest
from stoilo.core.errors import TrustError
from stoilo.core.limits import BOUNDS
from stoilo.executor.verifier.targets import InstalledRelease, TrustedRelease
from stoilo.executor.verifier.trust import ReleaseFiles, load_trust, travels
from stoilo.signer.attestations import BuildEvidence
from stoilo.signer.ceremony.metadata import RoleFile
from stoilo.signer.ceremony.transcript import TranscriptLine, render_transcript
from stoilo.signer.published.contents import (
    Contents,
    check_archives,
    read_contents,
)
from stoilo.signer.published.evidence import (
    check_attestations,
    check_boinc,
    check_log,
    check_pairs,
    read_transcript_of,
)
from stoilo.signer.published.history import History, RoleVersion, read_history
from stoilo.signer.published.places import Place

ROOT_COPY: Final = "root.json"
"""What volunteers take as ``--root FILE``: a copy of one of the published roots."""


@dataclass(frozen=True, slots=True)
class PublishedRelease:
    """A published release that holds."""

    trust: TrustedRelease  # what it says, as a volunteer's verifier reads it
    roles: tuple[RoleVersion, ...]  # the metadata in force, root first
    # SHA-256 of what was signed as the first root, as the ceremony's review shows it
    # too: what volunteers must have got from elsewhere
    first_root: Digest
    given_root: bool  # whether the caller's own root was one of the chain
    # for each attested part, the builders who got the same bytes
    evidence: tuple[BuildEvidence, ...]
    # BOINC's code-sign key; None when nothing is signed with one
    boinc: BoincPublicKey | None
    # the log's record and where it lies; None when the release has no proof
    logged: LoggedRelease | None
    # what the people of the ceremony wrote; None when not published
    transcript: tuple[TranscriptLine, ...] | None
    files: int  # how many files were read


def verify_release(
    place: Place,  # where it lies; hostile
    now: int,  # Unix seconds: expiry is judged by it
    *,
    installed: InstalledRelease,  # this installation's levels and language layer
    # a root that the caller trusts; without one the first root is believed, and only what
    # people compare by its fingerprint tells whose release it is
    root: bytes | None = None,
) -> PublishedRelease:
    """Verify everything that is published.

    Raises:
        UsageError: STO-K052 when there is no release.
        TrustError: the first thing that does not hold, by its own code.
        UnreachableError: STO-L002.
    """
    # Metadata first: it says which other bytes may be there.
    history = read_history(place.read, place.names(), root)
    contents = read_contents(place, history)
    found = {ROOT_COPY, *contents.paths, *(one.path for one in history.all())}
    files = _travelling(history, contents)
    trust = load_trust(
        files,
        history.roots[0].data if root is None else root,
        now,
        installed=installed,
    )
    built = check_archives(place, contents, trust.parts)
    check_pairs(place, history, contents, trust, built)
    evidence = check_attestations(place, contents, trust, found)
    boinc = check_boinc(place, contents, found)
    transcript = read_transcript_of(place, found)
    digest = "" if transcript is None else content_digest(render_transcript(transcript))
    logged = check_log(place, files, trust, digest, found)
    _check_root_copy(place, history)
    _refuse_others(place, found)
    return PublishedRelease(
        trust=trust,
        roles=tuple(history.newest()),
        first_root=RoleFile("root", 1, history.roots[0].data).signed_digest,
        given_root=root is not None,
        evidence=evidence,
        boinc=boinc,
        logged=logged,
        transcript=transcript,
        files=len(found),
    )


def _travelling(history: History, contents: Contents) -> ReleaseFiles:
    """Return what a volunteer would be given: verified again there, from scratch."""
    files = {one.path: one.data for one in history.all()}
    for one in contents.current.values():
        if travels(one.name):
            files[one.path] = one.data
    return ReleaseFiles(tuple(files.items()))


def _check_root_copy(place: Place, history: History) -> None:
    """Refuse a ``root.json`` that is missing, or none of the published roots."""
    data = place.read(ROOT_COPY, BOUNDS.metadata_bytes)
    if data is None:
        raise TrustError("STO-K013", f"the release lacks {ROOT_COPY}")
    if data not in {one.data for one in history.roots}:
        raise TrustError("STO-K012", "root.json is none of the release's roots")


def _refuse_others(place: Place, found: set[str]) -> None:
    names = place.names()
    # The publisher did not sign it, so nobody should meet it.
    others = set() if names is None else names - found
    if others:
        raise TrustError(
            "STO-K013",
            f"{min(others)[:120]!r} belongs to nothing in the release",
            hint="the publisher did not sign it: do not use it",
        )
