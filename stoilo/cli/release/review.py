"""`stoilo release review`: a ceremony, or a published release, read before anybody signs."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import click
import msgspec

from stoilo.cli.keys import read_small
from stoilo.cli.output import FILE, FOLDER, JSON, say
from stoilo.cli.output import now as clock
from stoilo.cli.release.ceremony_folder import print_review
from stoilo.core.errors import TrustError
from stoilo.signer.ceremony.base_release import find_release, open_published
from stoilo.signer.ceremony.folder import Ceremony, read_folder
from stoilo.signer.ceremony.lists import render_time
from stoilo.signer.ceremony.metadata import RoleFile
from stoilo.signer.ceremony.release_status import (
    ReleaseStatus,
    RoleHolders,
    read_status,
    role_holders,
    warnings_of,
)
from stoilo.signer.ceremony.review import review as review_ceremony
from stoilo.signer.ceremony.signatures import combine


@click.command()
@click.argument("folders", type=FOLDER, nargs=-1, required=True)
@click.option(
    "--root",
    "root_file",
    type=FILE,
    help="The project's first root, as you have it from elsewhere.",
)
@JSON
@click.pass_context
def review(
    context: click.Context,
    folders: tuple[Path, ...],
    root_file: Path | None,
    *,
    as_json: bool,
) -> None:
    """Show what the ceremony in FOLDERS changes, who signed, and what is wrong.

    FOLDERS are one folder, or copies of it that several people have signed apart; or a
    published release or a server's data directory: then who holds which role, and what
    ends when. Exit code 0: nothing is wrong; 4: nobody may sign this, or something has
    expired.
    """
    if len(folders) == 1 and not (folders[0] / "ceremony.json").exists():
        if _show_release(folders[0], as_json=as_json):
            context.exit(4)
        return
    found = review_ceremony(together(folders), clock())
    if root_file is not None:
        check_first_root(found.first_root, root_file)
    print_review(found, *folders, as_json=as_json)
    if found.problems:
        context.exit(4)


def together(folders: tuple[Path, ...]) -> Ceremony:
    """Return the ceremony with the signatures of all copies, in whatever order."""
    first, *copies = (read_folder(folder) for folder in folders)
    return combine([first, *copies]) if copies else first


def check_first_root(first_root: str, root_file: Path) -> None:
    """Raise ``STO-K052`` unless the release begins with the root in `root_file`."""
    known = RoleFile("root", 0, read_small(root_file)).signed_digest
    if known != first_root:
        raise TrustError(
            "STO-K052",
            f"the release in the folder does not begin with {root_file.name}",
            hint="do not sign: it is another project's, or a forged one",
        )


def _show_release(directory: Path, *, as_json: bool) -> bool:
    """Show who holds which role of a release; returns whether something has expired."""
    base = open_published(find_release(directory))
    found, holders = read_status(base, clock()), role_holders(base)
    document = msgspec.to_builtins(found) | {
        "holders": holders,
        "warnings": warnings_of(found),
    }
    say(document, _describe(found, holders), as_json=as_json)
    return found.state == "expired"


def _describe(found: ReleaseStatus, holders: Mapping[str, RoleHolders]) -> str:
    lines = [f"Release of {found.origin}: {found.state}"]
    for role in found.roles:
        lines.append(
            f"  {role.role} {role.version}: {role.state}, ends {render_time(role.expires)}"
        )
        keys = holders[role.role].keys
        names = ", ".join(f"{one.name} [{one.fingerprint}]" for one in keys)
        lines.append(f"    {holders[role.role].threshold} of {len(keys)}: {names}")
    if found.epochs_until:
        lines.append(f"  gate epochs until {render_time(found.epochs_until)}")
    lines += [
        f"  {part.part} {part.platform}: {part.version}, serial {part.serial}"
        for part in found.parts
    ]
    lines += [f"Warning: {line}" for line in warnings_of(found)]
    return "\n".join(lines)
