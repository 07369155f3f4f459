"""`stoilo boinc`: volunteers' accounts of the project in a data directory."""

from __future__ import annotations

import dataclasses
import json
import time
from pathlib import Path

import click

from stoilo.cli.boinc_programs import programs
from stoilo.core.errors import UsageError

__all__ = ["boinc"]


@click.group()
def boinc() -> None:
    """Volunteer accounts of a project."""


boinc.add_command(programs)


@boinc.command()
@click.option(
    "--data",
    required=True,
    type=click.Path(path_type=Path, file_okay=False),
    help="Data directory of `stoilo up`.",
)
@click.option("--email", required=True, help="Address of the volunteer.")
@click.option("--max-level", help="Highest level whose tasks may be sent (pure).")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
def account(data: Path, email: str, max_level: str | None, as_json: bool) -> None:
    """Make or find a volunteer's account and print its (weak) key.

    The weak key fetches and reports work and opens nothing else. What a volunteer's
    computer runs is decided there, by its own opt-in; the level here only filters what
    is sent to it.
    """
    from stoilo.server.engines.embedded.accounts import open_accounts  # noqa: PLC0415

    directory = data / "engine"
    if not directory.is_dir():
        raise UsageError(
            "STO-U004",
            f"{data.name or data} is not the data directory of a server",
            hint="start one with `stoilo up --data DIR`",
        )
    accounts = open_accounts(directory)
    made = accounts.ensure(email, int(time.time()), max_level=max_level)
    if as_json:
        shown = dataclasses.asdict(made)
        shown["key"] = shown.pop("weak_key")
        click.echo(json.dumps(shown))
    else:
        click.echo(made.weak_key)
