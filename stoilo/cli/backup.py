"""`stoilo backup` and `stoilo restore`."""

from __future__ import annotations

import os
from pathlib import Path

import click

from stoilo.audit.read.source import open_source
from stoilo.cli.output import DATA, FOLDER, JSON, read_file, say
from stoilo.core.errors import UsageError
from stoilo.server.backup.manifest import Manifest
from stoilo.server.backup.restoring import Restore, restore_backup
from stoilo.server.backup.taking import take_backup
from stoilo.server.config import load_config

MAX_NOTE_BYTES = 1024 * 1024
MAX_URL_BYTES = 4096


@click.command()
@DATA
@click.option(
    "--output",
    type=FOLDER,
    required=True,
    help="Directory to make.",
)
@click.option("--offline-keys", is_flag=True, help="Take keys/offline along.")
@JSON
def backup(data: Path, output: Path, offline_keys: bool, as_json: bool) -> None:
    """Copy everything a server keeps, of one moment, while it runs.

    The copy holds keys, tokens and volunteers' addresses: keep it as you keep the server.
    """
    config, _ = load_config(data.absolute(), {}, os.environ)
    made = take_backup(config, output, offline_keys=offline_keys)
    text = (
        f"{output}: {len(made.files)} files, {_bytes(made)} bytes; "
        f"the log {made.log.origin} with {made.log.size} leaves"
    )
    say(_summary(made), text + _of_keys(made), as_json=as_json)


@click.command()
@click.argument("backup", type=click.Path(path_type=Path, exists=True, file_okay=False))
@DATA
@click.option(
    "--newest",
    help="Newest checkpoint that others hold: a file, or a log's URL.",
)
@click.option(
    "--log",
    type=click.Path(path_type=Path, file_okay=False, exists=True),
    help="Data directory whose log survived: take the log from there.",
)
@click.option(
    "--nothing-published-since",
    is_flag=True,
    help="I say that the server published nothing after the backup.",
)
@click.option(
    "--database-file",
    type=click.Path(path_type=Path, dir_okay=False, exists=True),
    help="File with the URL of an empty MariaDB for all tables.",
)
@JSON
def restore(
    backup: Path,
    data: Path,
    newest: str | None,
    log: Path | None,
    nothing_published_since: bool,
    database_file: Path | None,
    as_json: bool,
) -> None:
    """Make a data directory out of a BACKUP; it must not exist yet.

    A log that goes on from an old state forks. So say what the newest state is: --newest,
    --log or --nothing-published-since.
    """
    wish = Restore(
        backup,
        data,
        newest=None if newest is None else _read_note(newest),
        nothing_newer=nothing_published_since,
        log=log,
        database=_read_url(database_file),
    )
    made = restore_backup(wish)
    first = f"start it with: stoilo up --data {data}"
    if made.development and not made.offline_keys:
        first = (
            "first copy keys/offline of the old server, which the backup has not, to "
            f"{data / 'keys' / 'offline'}: without it nothing is renewed, and the server "
            f"does not start once something has to be signed; then {first}"
        )
    text = (
        f"{data}: restored; {first}\n"
        "what happened after the backup is not in it; volunteers' results of that time "
        "are asked for again"
    )
    held = _of_keys(made) if made.offline_keys else ""
    say(_summary(made), text + held, as_json=as_json)


def _summary(made: Manifest) -> dict[str, object]:
    return {
        "taken_at": made.taken_at,
        "files": len(made.files),
        "bytes": _bytes(made),
        "log": made.log.origin,
        "leaves": made.log.size,
        "offline_keys": made.offline_keys,
        "development": made.development,
    }


def _bytes(made: Manifest) -> int:
    return sum(one.size for one in made.files)


def _of_keys(made: Manifest) -> str:
    if made.offline_keys:
        return "\nit holds keys/offline: whoever reads it can replace everything"
    if made.development:
        return (
            "\nkeys/offline is not in it (--offline-keys): without it a restored server "
            "renews nothing, and does not start once something has to be signed: keep a "
            "copy of that folder elsewhere"
        )
    return ""


def _read_note(place: str) -> bytes:
    path = Path(place)
    if path.is_file():
        return read_file(path, MAX_NOTE_BYTES)
    note = open_source(place).checkpoint()
    if note is None:
        raise UsageError("STO-B066", f"{place[:80]} has no checkpoint")
    return note


def _read_url(path: Path | None) -> str:
    if path is None:
        return ""
    return read_file(path, MAX_URL_BYTES).decode(errors="replace").strip()
