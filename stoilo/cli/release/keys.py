"""`stoilo release keygen|online-keys|boinc-change`: people's keys, the server's, BOINC's."""

from __future__ import annotations

import json
import os
import time
from pathlib import Path

import click
import msgspec

from stoilo.cli.keys import (
    ask_passphrase,
    confirm_fingerprint,
    open_key_file,
    passphrase_option,
    read_public_file,
)
from stoilo.core.boinc.codesign import parse_boinc_public, render_boinc_public
from stoilo.core.errors import InternalError, UsageError
from stoilo.server.config import DEFAULT_ORIGIN, load_config
from stoilo.signer.boinc_keys import sign_key_change
from stoilo.signer.key_files import write_private_file
from stoilo.signer.offline_keys import (
    BOINC_ROLE,
    HARD,
    KEY_ROLES,
    Hardness,
    PublicKeyFile,
    create_key,
    render_public_file,
)
from stoilo.signer.process.online_keys import (
    OnlineKeys,
    make_online_keys,
    render_online_keys,
    requested_keys,
)

_FOLDER = click.Path(path_type=Path, file_okay=False)


@click.command()
@click.option(
    "--role",
    required=True,
    type=click.Choice(KEY_ROLES),
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
    paths = [folder / f"{name}.{role}" for folder in (output, *copies)]
    _refuse_present(paths)
    passphrase = ask_passphrase(passphrase_fd, f"the new {role} key", twice=True)
    hardness = Hardness(memory_kib=19 * 1024, passes=2, lanes=1) if rehearsal else HARD
    private, public = create_key(role, name, passphrase, hardness=hardness)
    # Before anything is written: a fingerprint nobody copied is a key nobody can
    # check.
    if not rehearsal:
        confirm_fingerprint(public)
    for path in paths:
        _write_key(path, private, render_public_file(public))
    _show_key(public, paths, as_json=as_json)


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


def _write_key(path: Path, private: bytes, public: bytes) -> None:
    """Write both files, 0600, durably."""
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    write_private_file(_with(path, ".key"), private)
    write_private_file(_with(path, ".pub"), public)


def _with(path: Path, suffix: str) -> Path:
    """Return `path` with a suffix more: names may hold dots."""
    return path.with_name(path.name + suffix)


def _show_key(public: PublicKeyFile, paths: list[Path], *, as_json: bool) -> None:
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


_REPLACEABLE = ("online", "revocation", "gate")


@click.command("online-keys")
@click.option(
    "--data",
    required=True,
    type=click.Path(path_type=Path, file_okay=False),
    help="Data directory of the server; its private keys stay there.",
)
@click.option(
    "--out",
    required=True,
    type=click.Path(path_type=Path, dir_okay=False),
    help="File of the public parts, for the ceremony.",
)
@click.option("--origin", help="Name of project and log, at the first time.")
@click.option(
    "--epochs",
    type=int,
    default=4,
    show_default=True,
    help="Gate epochs to have ahead, 13 days apart; a thief of the server has them all.",
)
@click.option(
    "--replace",
    type=click.Choice(_REPLACEABLE),
    multiple=True,
    help="Make a new key beside the present one, for example after a theft.",
)
@click.option("--json", "as_json", is_flag=True, help="One JSON object.")
def online_keys(
    data: Path,
    out: Path,
    origin: str | None,
    epochs: int,
    replace: tuple[str, ...],
    *,
    as_json: bool,
) -> None:
    """Make the server's own keys; write their public parts for the ceremony.

    Run it on the server, also while it runs. Nothing that these keys sign counts before
    a ceremony has certified them. Call it again for further gate epochs.
    """
    known = requested_keys(data / "keys")
    name = origin or (known.origin if known else _configured_origin(data))
    data.mkdir(mode=0o700, parents=True, exist_ok=True)
    keys = make_online_keys(
        data / "keys", name, int(time.time()), epochs=epochs, replace=replace
    )
    _write(out, render_online_keys(keys))
    if as_json:
        click.echo(msgspec.json.encode(keys).decode())
    else:
        _show(keys, out, first=not (data / "keys" / "root.json").exists())


def _configured_origin(data: Path) -> str:
    """Return the origin of the server's configuration; raises ``STO-K090``."""
    config, _ = load_config(data, {}, os.environ)
    if config.origin == DEFAULT_ORIGIN:
        raise UsageError(
            "STO-K090",
            "the project has no name yet",
            hint="--origin example.org/project, the same for ever: the log has it too",
        )
    return config.origin


def _write(out: Path, data: bytes) -> None:
    """Write a public file; raises ``STO-U006``."""
    try:
        out.write_bytes(data)
    except OSError as error:
        raise InternalError("STO-U006", f"{out.name}: {error.strerror}") from error


def _show(keys: OnlineKeys, out: Path, *, first: bool) -> None:
    """Say what was made, and what comes next."""
    last = keys.epochs[-1]
    until = time.strftime("%Y-%m-%d", time.gmtime(last.not_after))
    numbers = ", ".join(str(epoch.epoch) for epoch in keys.epochs)
    click.echo(f"project         {keys.origin}")
    click.echo(f"log             {keys.log_vkey}")
    click.echo(f"online          {keys.online}")
    click.echo(f"revocation      {keys.revocation}")
    click.echo(f"gate epochs     {numbers} (until {until})")
    click.echo(f"written         {out}; the private keys stay on this machine")
    click.echo("")
    step = "release init" if first else "release request"
    click.echo(f"Next: carry {out.name} to the ceremony: stoilo {step} --help")


_FILE = click.Path(path_type=Path, dir_okay=False)
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
