"""`stoilo release boinc-change`: BOINC's old code-sign key vouches for its successor."""

from __future__ import annotations

import json
from pathlib import Path

import click

from stoilo.cli.keys import open_key_file, passphrase_option, read_public_file
from stoilo.core.errors import UsageError

__all__ = ["boinc_change"]

_FILE = click.Path(path_type=Path, dir_okay=False)
_FOLDER = click.Path(path_type=Path, file_okay=False)
MAX_CHANGES = 99


@click.command(name="boinc-change")
@click.option(
    "--old", required=True, type=_FILE, help="The present key, of role boinc."
)
@click.option("--new", required=True, type=_FILE, help="Public file of the new one.")
@click.option(
    "--output",
    required=True,
    type=_FOLDER,
    help="Folder for the server's keys directory.",
)
@click.option(
    "--number",
    type=click.IntRange(0, MAX_CHANGES),
    default=0,
    show_default=True,
    help="How many changes there were before this one.",
)
@passphrase_option
@click.option("--json", "as_json", is_flag=True, help="One JSON object.")
def boinc_change(
    old: Path,
    new: Path,
    output: Path,
    number: int,
    passphrase_fd: int | None,
    *,
    as_json: bool,
) -> None:
    """Let clients that know the old BOINC key accept a new one.

    Writes old_key_N and signature_stripped_N as a BOINC server hands them out. One
    signature is all that BOINC asks for, so a thief of the old key can do the same: the
    launcher's own checks do not rest on it.
    """
    from stoilo.signer.boinckeys import (  # noqa: PLC0415 - loads cryptography
        parse_boinc_public,
        render_boinc_public,
        sign_key_change,
    )
    from stoilo.signer.keyfiles import write_private_file  # noqa: PLC0415 - an extra
    from stoilo.signer.offlinekeys import BOINC_ROLE  # noqa: PLC0415 - an extra

    successor = read_public_file(new)
    if successor.role != BOINC_ROLE:
        raise UsageError("STO-U003", f"{new.name} is a {successor.role} key")
    private = open_key_file(old, passphrase_fd).boinc()
    files = {
        f"old_key_{number}": render_boinc_public(private.public),
        f"signature_stripped_{number}": sign_key_change(
            parse_boinc_public(successor.key), private
        ),
        "code_sign_public": successor.key,
    }
    output.mkdir(mode=0o700, parents=True, exist_ok=True)
    for name, text in files.items():
        write_private_file(output / name, text.encode("ascii"))
    if as_json:
        click.echo(json.dumps({"files": [str(output / name) for name in files]}))
        return
    click.echo("\n".join(str(output / name) for name in files))
    click.echo("Next: put them into the server's keys directory; sign the files anew.")
