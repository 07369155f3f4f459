"""`stoilo release status`: who holds which role, and what expires when."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click
import msgspec

from stoilo.cli.ceremony import FOLDER, clock, json_option
from stoilo.core.plaintext import show_plainly

if TYPE_CHECKING:
    from stoilo.signer.ceremony.status import ReleaseState

__all__ = ["status"]


@click.command()
@click.argument("directory", metavar="DIR_OR_FOLDER", type=FOLDER)
@json_option
@click.pass_context
def status(context: click.Context, directory: Path, *, as_json: bool) -> None:
    """Show a release's roles: who holds them, which version, and what expires when.

    DIR_OR_FOLDER is a release, a server's data directory, or a ceremony's folder (then
    who has signed is shown too). Exit code 4: something has expired.
    """
    from stoilo.signer.ceremony.status import read_state  # noqa: PLC0415 - loads tuf

    found = read_state(directory, clock())
    if as_json:
        click.echo(msgspec.json.encode(found).decode())
    else:
        _show(found)
    if found.state == "expired":
        context.exit(4)


def _show(found: ReleaseState) -> None:
    from stoilo.signer.ceremony.describe import render_time  # noqa: PLC0415 - loads tuf

    lines = [f"Release of {found.origin}: {found.state if found.roles else 'not yet'}"]
    for role in found.roles:
        lines.append(
            f"  {role.role} {role.version}: {role.state}, ends {render_time(role.expires)}"
        )
        if role.keys:
            names = ", ".join(f"{one.name} [{one.fingerprint}]" for one in role.keys)
            lines.append(f"    {role.threshold} of {len(role.keys)}: {names}")
    if found.epochs_until:
        lines.append(f"  gate epochs until {render_time(found.epochs_until)}")
    lines += [f"  {line}" for line in found.parts]
    lines += [f"Warning: {line}" for line in found.warnings]
    lines += [f"Signed here: {line}" for line in found.signed]
    click.echo(show_plainly("\n".join(lines)))
