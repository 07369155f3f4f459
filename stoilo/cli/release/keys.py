"""`stoilo release keygen|online-keys`: people's keys, and the server's."""

from __future__ import annotations

import os
from pathlib import Path

import click

from stoilo.cli.keys import (
    ask_passphrase,
    confirm_fingerprint,
    passphrase_option,
)
from stoilo.cli.output import FILE, FOLDER, JSON, cannot_write, now, render_day, say
from stoilo.core.errors import UsageError
from stoilo.server.config import DEFAULT_ORIGIN, load_config
from stoilo.signer.key_files import write_private_file
from stoilo.signer.offline_keys import (
    HARD,
    KEY_ROLES,
    Hardness,
    PublicKeyFile,
    create_key,
    render_public_file,
)
from stoilo.signer.process.online_keys import (
    DEFAULT_EPOCHS,
    REPLACEABLE,
    OnlineKeys,
    make_online_keys,
    render_online_keys,
    requested_keys,
)


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
    type=FOLDER,
    help="Folder for NAME.ROLE.key and NAME.ROLE.pub; a medium that stays with its owner.",
)
@click.option(
    "--copy",
    "copies",
    type=FOLDER,
    multiple=True,
    help="Folder on a second medium for the same two files; may be given again.",
)
@click.option(
    "--rehearsal",
    is_flag=True,
    help="For rehearsing: nothing is typed back, and guessing is made less costly.",
)
@passphrase_option
@JSON
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
    # Before anything is written: a fingerprint nobody copied is a key nobody can check.
    if not rehearsal:
        confirm_fingerprint(public)
    for path in paths:
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        write_private_file(_with(path, ".key"), private)
        write_private_file(_with(path, ".pub"), render_public_file(public))
    _show_key(public, paths, as_json=as_json)


def _refuse_present(paths: list[Path]) -> None:
    """Refuse to overwrite, and one medium given twice."""
    for path in paths:
        for suffix in (".key", ".pub"):
            if _with(path, suffix).exists():
                raise UsageError(
                    "STO-U003",
                    f"{path}{suffix} exists already",
                    hint="a key is never overwritten; choose another name or folder",
                )
    if len({path.parent.resolve() for path in paths}) != len(paths):
        raise UsageError(
            "STO-U003", "a copy belongs on another medium", hint="give another --copy"
        )


def _with(path: Path, suffix: str) -> Path:
    """Return `path` with a suffix more: names may hold dots."""
    return path.with_name(path.name + suffix)


def _show_key(public: PublicKeyFile, paths: list[Path], *, as_json: bool) -> None:
    """Print where the key is, its fingerprint and what comes next."""
    private = [str(_with(path, ".key")) for path in paths]
    files = [str(_with(path, ".pub")) for path in paths]
    row = {
        "role": public.role,
        "name": public.name,
        "key": public.key,
        "fingerprint": public.fingerprint,
        "private": private,
        "public": files,
    }
    lines = [f"{public.role} key of {public.name}", f"  {public.fingerprint}"]
    lines += [
        f"  {key} (private)  {file}" for key, file in zip(private, files, strict=True)
    ]
    if len(files) == 1:
        only = "This is the only copy: `--copy FOLDER` writes it to a second medium."
        lines.append(only)
    lines.append(
        "Next: hand the .pub file to the ceremony, and read it the fingerprint."
    )
    say(row, "\n".join(lines), as_json=as_json)


@click.command("online-keys")
@click.option(
    "--data",
    required=True,
    type=FOLDER,
    help="Data directory of the server; its private keys stay there.",
)
@click.option(
    "--out",
    required=True,
    type=FILE,
    help="File of the public parts, for the ceremony.",
)
@click.option("--origin", help="Name of project and log, at the first time.")
@click.option(
    "--epochs",
    type=int,
    default=DEFAULT_EPOCHS,
    show_default=True,
    help="Gate epochs to have ahead, 13 days apart; a thief of the server has them all.",
)
@click.option(
    "--replace",
    type=click.Choice(REPLACEABLE),
    multiple=True,
    help="Make a new key beside the present one, for example after a theft.",
)
@JSON
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
    keys = make_online_keys(data / "keys", name, now(), epochs=epochs, replace=replace)
    try:
        out.write_bytes(render_online_keys(keys))
    except OSError as error:
        raise cannot_write(out, error) from error
    text = _describe(keys, out, first=not (data / "keys" / "root.json").exists())
    say(keys, text, as_json=as_json)


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


def _describe(keys: OnlineKeys, out: Path, *, first: bool) -> str:
    """Say what was made, and what comes next."""
    until = render_day(keys.epochs[-1].not_after)
    numbers = ", ".join(str(epoch.epoch) for epoch in keys.epochs)
    step = "release init" if first else "release request"
    return (
        f"project         {keys.origin}\n"
        f"log             {keys.log_vkey}\n"
        f"online          {keys.online}\n"
        f"revocation      {keys.revocation}\n"
        f"gate epochs     {numbers} (until {until})\n"
        f"written         {out}; the private keys stay on this machine\n\n"
        f"Next: carry {out} to the ceremony: stoilo {step} --help"
    )
