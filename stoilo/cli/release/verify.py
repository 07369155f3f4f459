"""`stoilo release verify`: everything that a project has published, checked."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path

import click

from stoilo.cli.keys import read_small
from stoilo.cli.output import FILE, JSON, say, say_refused
from stoilo.cli.output import now as clock
from stoilo.core.errors import StoiloError, show_plainly
from stoilo.executor.verifier.installation import installed_release
from stoilo.signer.ceremony.lists import show_line
from stoilo.signer.offline_keys import group_digest
from stoilo.signer.published.history import RoleVersion
from stoilo.signer.published.places import open_place
from stoilo.signer.published.verify import PublishedRelease, verify_release


@click.command()
@click.argument("location", metavar="URL_OR_DIR")
@click.option(
    "--root",
    type=FILE,
    help="The root that you trust, from somewhere else than this release.",
)
@JSON
@click.pass_context
def verify(
    context: click.Context, location: str, root: Path | None, as_json: bool
) -> None:
    """Check everything that a project has published, from its first root on.

    URL_OR_DIR is a release directory, a server's data directory or its URL with /release.
    Every signature, every version of every file, every archive and the tree inside, the
    builders' statements, BOINC's signatures and the log's proof. Needs no key.

    Exit code 0: it holds; 4: something does not; 2: no release there; 7: not reachable.
    """
    try:
        found = verify_release(
            open_place(location),
            clock(),
            installed=installed_release(),
            root=None if root is None else read_small(root),
        )
    except StoiloError as error:
        if not as_json:
            raise
        context.exit(say_refused(error))
    # Names in it cannot look like lines of ours.
    text = "\n".join(show_line(line) for line in _lines(found))
    say(_document(found), text, as_json=as_json)


def _document(found: PublishedRelease) -> dict[str, object]:
    """Return the machine's form of a release that holds."""
    return {
        "verified": True,
        "origin": found.trust.origin,
        "first_root": found.first_root,
        "root_given": found.given_root,
        "development": found.trust.development,
        "rehearsal": found.trust.rehearsal,
        "roles": [
            {
                "role": one.role,
                "version": one.signed.version,
                "expires": int(one.signed.expires.timestamp()),
                "threshold": one.threshold,
                "signers": _signers(one),
            }
            for one in found.roles
        ],
        "parts": [
            {
                "part": part.part,
                "platform": part.platform,
                "version": part.version,
                "serial": part.serial,
                "sha256": part.archive.sha256,
                "size": part.archive.size,
                "tree": part.tree,
                "builders": list(_builders(found, part.part, part.platform)),
            }
            for part in found.trust.parts
        ],
        "boinc_signed": found.boinc is not None,
        "log": found.logged
        and {
            "index": found.logged.proven.index,
            "size": found.logged.proven.size,
            "time": found.logged.record.time,
            "witnessed_at": found.logged.proven.agreed_time,
        },
        "transcript_lines": None if found.transcript is None else len(found.transcript),
        "files": found.files,
    }


def _lines(found: PublishedRelease) -> Iterator[str]:
    trust = found.trust
    kind = (
        "development " if trust.development else "rehearsal " if trust.rehearsal else ""
    )
    yield f"The {kind}release of {show_plainly(trust.origin)} holds: {found.files} files."
    for one in found.roles:
        names = ", ".join(map(show_plainly, _signers(one)))
        end = datetime.fromtimestamp(one.signed.expires.timestamp(), UTC).date()
        yield f"  {one.role:<11} version {one.signed.version}, until {end}, signed by {names}"
    for part in found.trust.parts:
        who = ", ".join(map(show_plainly, _builders(found, part.part, part.platform)))
        yield (
            f"  {part.part} {part.version} for {part.platform}: "
            f"{part.archive.size:,} bytes, {part.archive.sha256[:16]}…, "
            + (f"built equal by {who}" if who else "attested by nobody")
        )
    if found.trust.parts:
        yield "  BOINC: " + ("signed" if found.boinc else "no signatures")
    yield from _notes(found)


def _notes(found: PublishedRelease) -> Iterator[str]:
    if found.logged is None:
        yield "Not in the project's log yet, or its proof was not published."
    else:
        proven = found.logged.proven
        yield f"In the log: leaf {proven.index} of {proven.size}."
    if found.trust.development:
        yield "A development root: its offline keys lie on the server; it protects nobody."
    if found.trust.rehearsal:
        yield "A rehearsal's root: release-built verifiers refuse it."
    if not found.given_root:
        yield f"first root {group_digest(found.first_root)}"
        yield "The first root came from the release itself: compare it, or pass --root."


def _builders(found: PublishedRelease, part: str, platform: str) -> tuple[str, ...]:
    for one in found.evidence:
        if (one.part, one.platform) == (part, platform):
            return one.builders
    return ()


def _signers(one: RoleVersion) -> list[str]:
    """Return who signed a role: names, or the beginnings of keys' ids."""
    found = []
    for key in one.signers:
        name = key.unrecognized_fields.get("x-stoilo-name")
        found.append(name if isinstance(name, str) else key.keyid[:8])
    return sorted(found)
