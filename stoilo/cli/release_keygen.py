"""`stoilo release keygen`: one person's offline key, on a machine without a network."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING

import click

from stoilo.cli.keys import ask_passphrase, confirm_fingerprint, passphrase_option
from stoilo.core.errors import UsageError

if TYPE_CHECKING:
    from stoilo.signer.offlinekeys import PublicKeyFile

__all__ = ["keygen"]

_FOLDER = click.Path(path_type=Path, file_okay=False)
ROLES = (
    "root",
    "targets",
    "gate",
    "revocation",
    "policy",
    "reviewers",
    "builder",
    "boinc",
)


@click.command()
@click.option(
    "--role",
    required=True,
    type=click.Choice(ROLES),
    help="What the key is for: one key, one use.",
)
@click.option("--name", required=True, help="Whose key: a name for people.")
@click.option(
    "--output",
    required=True,
    type=_FOLDER,
    help="Folder for NAME.ROLE.key and NAME.ROLE.pub; a medium that stays with its owner.",
)
@click.option(
    "--copy",
    "copies",
    type=_FOLDER,
    multiple=True,
    help="Folder on a second medium for the same two files; may be given again.",
)
@click.option(
    "--rehearsal",
    is_flag=True,
    help="For rehearsing: nothing is typed back, and guessing is made less costly.",
)
@passphrase_option
@click.option("--json", "as_json", is_flag=True, help="One JSON object.")
def keygen(
    role: str,
    name: str,
    output: Path,
    copies: tuple[Path, ...],
    *,
    rehearsal: bool,
    passphrase_fd: int | None,
    as_json: bool,
) -> None:
    """Make an offline key, encrypted under a passphrase, and its public file.

    Shows the key's fingerprint and has two of its groups typed back before anything is
    written. The .key file stays with its owner; the .pub file goes to the ceremony.

    Example: stoilo release keygen --role root --name ada --output /media/ada --copy /media/safe
    """
    from stoilo.signer.offlinekeys import (  # noqa: PLC0415 - loads cryptography
        HARD,
        Hardness,
        create_key,
        render_public_file,
    )

    paths = [folder / f"{name}.{role}" for folder in (output, *copies)]
    _refuse_present(paths)
    passphrase = ask_passphrase(passphrase_fd, f"the new {role} key", twice=True)
    hardness = Hardness(memory_kib=19 * 1024, passes=2, lanes=1) if rehearsal else HARD
    private, public = create_key(role, name, passphrase, hardness=hardness)
    if not rehearsal:
        confirm_fingerprint(public)
    for path in paths:
        _write(path, private, render_public_file(public))
    _show(public, paths, as_json=as_json)


def _refuse_present(paths: list[Path]) -> None:
    """Refuse to overwrite, and one medium given twice."""
    for path in paths:
        for suffix in (".key", ".pub"):
            if _with(path, suffix).exists():
                raise UsageError(
                    "STO-U003",
                    f"{path.name}{suffix} exists already",
                    hint="a key is never overwritten; choose another name or folder",
                )
    if len({path.parent.resolve() for path in paths}) != len(paths):
        raise UsageError(
            "STO-U003", "a copy belongs on another medium", hint="give another --copy"
        )


def _write(path: Path, private: bytes, public: bytes) -> None:
    """Write both files, 0600, durably."""
    from stoilo.signer.keyfiles import write_private_file  # noqa: PLC0415 - an extra

    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    write_private_file(_with(path, ".key"), private)
    write_private_file(_with(path, ".pub"), public)


def _with(path: Path, suffix: str) -> Path:
    """Return `path` with a suffix more: names may hold dots."""
    return path.with_name(path.name + suffix)


def _show(public: PublicKeyFile, paths: list[Path], *, as_json: bool) -> None:
    """Print where the key is, its fingerprint and what comes next."""
    files = [str(_with(path, ".pub")) for path in paths]
    if as_json:
        row = {
            "role": public.role,
            "name": public.name,
            "key": public.key,
            "fingerprint": public.fingerprint,
            "private": [str(_with(path, ".key")) for path in paths],
            "public": files,
        }
        click.echo(json.dumps(row))
        return
    click.echo(f"{public.role} key of {public.name}\n  {public.fingerprint}")
    for file in files:
        click.echo(f"  {file.removesuffix('.pub')}.key (private)  {file}")
    if len(files) == 1:
        click.echo(
            "This is the only copy: `--copy FOLDER` writes it to a second medium."
        )
    click.echo("Next: hand the .pub file to the ceremony, and read it the fingerprint.")
