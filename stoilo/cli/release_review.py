"""`stoilo release review`: what a ceremony changes, who signed and who is missing."""

from __future__ import annotations

from pathlib import Path

import click

from stoilo.cli.ceremony import (
    FILE,
    FOLDER,
    clock,
    json_option,
    print_review,
    read_small,
)

__all__ = ["check_first_root", "review"]


@click.command()
@click.argument("folder", type=FOLDER)
@click.option(
    "--root",
    "root_file",
    type=FILE,
    help="The project's first root, as you have it from elsewhere.",
)
@json_option
@click.pass_context
def review(
    context: click.Context, folder: Path, root_file: Path | None, *, as_json: bool
) -> None:
    """Show what the ceremony in FOLDER changes, who signed, and what is wrong.

    Exit code 0: nothing is wrong; 4: nobody may sign this.
    """
    from stoilo.signer.ceremony.folder import read_folder  # noqa: PLC0415 - loads tuf
    from stoilo.signer.ceremony.review import review as look  # noqa: PLC0415 - as above

    ceremony = read_folder(folder)
    found = look(ceremony, clock())
    if root_file is not None:
        check_first_root(found.first_root, root_file)
    print_review(found, folder, as_json=as_json)
    if found.problems:
        context.exit(4)


def check_first_root(first_root: str, root_file: Path) -> None:
    """Raise ``STO-K052`` unless the release begins with the root in `root_file`."""
    from stoilo.core.errors import TrustError  # noqa: PLC0415 - with the rest
    from stoilo.signer.ceremony.metadata import RoleFile  # noqa: PLC0415 - loads tuf

    known = RoleFile("root", 0, read_small(root_file)).signed_digest
    if known != first_root:
        raise TrustError(
            "STO-K052",
            f"the release in the folder does not begin with {root_file.name}",
            hint="do not sign: it is another project's, or a forged one",
        )
