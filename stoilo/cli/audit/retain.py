"""`stoilo audit retain`: delete what need not be kept, and say so in the log."""

from __future__ import annotations

import dataclasses
import json
import os
import time
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING

import click

from stoilo.cli.extras import require_extra
from stoilo.core.errors import UsageError

if TYPE_CHECKING:
    from stoilo.server.operations.retention import Retained


KINDS = ("sources", "arguments", "results", "salts")


@click.command()
@click.option(
    "--data",
    metavar="DIR",
    type=click.Path(path_type=Path),
    envvar="STOILO_DATA",
    show_envvar=True,
    required=True,
    help="Data directory of the server, running or not.",
)
@click.option("--what", type=click.Choice(KINDS), required=True, help="What is to go.")
@click.option(
    "--before", metavar="YYYY-MM-DD", required=True, help="Of tasks final before (UTC)."
)
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
def retain(data: Path, what: str, before: str, as_json: bool) -> None:
    """Delete sources, arguments, results or salts of old tasks, for good.

    Leaves and public records stay. The deletion itself becomes a leaf: at once where
    the server runs, else at its next start. `sources` are task and validator modules,
    also published ones; `arguments` include blobs that no other task names; `results`
    include texts of errors and captured output; `salts` are what ties commitments to
    tasks, and to accounts that nobody can use any more.
    """
    require_extra("server")
    from stoilo.server.operations.retention import What  # noqa: PLC0415 - loads the server
    from stoilo.server.operations.retention import retain as delete  # noqa: PLC0415

    time_s = parse_day(before)
    done = delete(data, What(what), time_s, int(time.time()), os.environ)
    click.echo(render_json(done) if as_json else render_report(done, before))


def parse_day(text: str) -> int:
    """Return the first second of a day (UTC); raises ``STO-L146``."""
    try:
        day = datetime.strptime(text, "%Y-%m-%d").replace(tzinfo=UTC)
    except ValueError as error:
        raise UsageError("STO-L146", f"{text[:40]!r} is not a date") from error
    return int(day.timestamp())


def render_json(done: Retained) -> str:
    """Return the machine's form of what was done."""
    return json.dumps(dataclasses.asdict(done))


def render_report(done: Retained, before: str) -> str:
    """Return what a person reads of what was done."""
    if not done.count:
        return f"Nothing to delete: no {done.what} of tasks final before {before}."
    lines = [f"Deleted {done.count} {done.what} of tasks final before {before}."]
    if done.published:
        lines.append(f"{len(done.published)} published sources are gone too.")
    lines.append(
        "The log tells of it: at once where the server runs, else when it starts."
    )
    return "\n".join(lines)
