"""What the commands of `stoilo boinc` share: the data directory, the roster, tables."""

from __future__ import annotations

import contextlib
import dataclasses
import json
import os
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from stoilo.core.errors import UsageError, show_plainly

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from stoilo.server.engines.embedded.accounts.roster import Roster


DATA = click.option(
    "--data",
    required=True,
    type=click.Path(path_type=Path, file_okay=False),
    help="Data directory of `stoilo up`.",
)
JSON = click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")


@contextlib.contextmanager
def open_project(data: Path) -> Iterator[Roster]:
    """Yield the people and hosts of a data directory, also beside its server.

    Raises:
        UsageError: ``STO-U004`` for a directory that is none.
    """
    from stoilo.server.config import load_config  # noqa: PLC0415
    from stoilo.server.engines.embedded.accounts.roster import open_roster  # noqa: PLC0415

    directory = data / "engine"
    if not directory.is_dir():
        raise UsageError(
            "STO-U004",
            f"{data.name or data} is not the data directory of a server",
            hint="start one with `stoilo up --data DIR`",
        )
    config, _ = load_config(data.absolute(), {}, os.environ)
    with contextlib.closing(
        open_roster(directory, config.engine_database_url)
    ) as roster:
        yield roster


def project_url(data: Path) -> str | None:
    """Return the project's address at its last start, None before the first."""
    import msgspec  # noqa: PLC0415 - not needed for --help

    from stoilo.server.data_directory import CONNECTION_FILE, ConnectionFile  # noqa: PLC0415

    try:
        text = (data / CONNECTION_FILE).read_bytes()
        return msgspec.json.decode(text, type=ConnectionFile).project
    except (OSError, msgspec.MsgspecError):
        return None


def now() -> int:
    """Return the time, s since 1970."""
    return int(time.time())


def ago(moment: int) -> str:
    """Return how long ago a moment was; a clock that was set back makes it now."""
    return f"{max(0, now() - moment)} s ago"


def echo_found(
    name: str,
    found: Sequence[Any],
    columns: Mapping[str, Callable[[Any], object]],
    *,
    as_json: bool,
) -> None:
    """Print dataclasses, as the JSON object {name: [...]} or as a table of `columns`."""
    if as_json:
        click.echo(json.dumps({name: [dataclasses.asdict(one) for one in found]}))
        return
    rows = [[show(one) for show in columns.values()] for one in found]
    echo_table([list(columns), *rows])


def echo_table(rows: Sequence[Sequence[object]]) -> None:
    """Print rows in columns; what strangers named is shown as plain text."""
    texts = [[show_plainly(str(cell)) for cell in row] for row in rows]
    widths = [max(map(len, column)) for column in zip(*texts, strict=True)]
    for row in texts:
        cells = (cell.ljust(width) for cell, width in zip(row, widths, strict=True))
        click.echo("  ".join(cells).rstrip())
