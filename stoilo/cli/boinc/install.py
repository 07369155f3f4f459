"""`stoilo boinc install`: makes a stock BOINC project an engine of ours."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path

import click

from stoilo.cli.boinc.data import JSON
from stoilo.core.errors import UsageError

_FOLDER = click.Path(path_type=Path, file_okay=False)


@click.command()
@click.argument("project_dir", type=_FOLDER)
@click.option("--data", type=_FOLDER, help="Data directory of the server: its release.")
@click.option("--release", type=_FOLDER, help="A published release, instead.")
@click.option(
    "--quick", is_flag=True, help="Let hosts ask every few seconds: for few hosts."
)
@click.option("--dry-run", is_flag=True, help="Show what would be done, do nothing.")
@JSON
def install(
    project_dir: Path,
    *,
    data: Path | None,
    release: Path | None,
    quick: bool,
    dry_run: bool,
    as_json: bool,
) -> None:
    """Set up a stock BOINC project for stoilo: apps, programs, daemons, preferences.

    Run it on the project's server, after make_project and after every release. What is
    already as it should be is left alone; config.xml is edited in place and a copy of it
    kept. The programs are those that the ceremony signed: no private key is needed here,
    and one that lies here is named.

    Example: stoilo boinc install /srv/project --data /srv/stoilo
    """
    from stoilo.server.engines.stock.installation.install import (  # noqa: PLC0415 - extra
        install_project,
        read_offer,
    )

    if (data is None) == (release is None):
        raise UsageError("STO-U003", "name either --data or --release")
    folder = release if release is not None else Path(str(data), "keys")
    plan = install_project(
        project_dir, read_offer(folder), quick=quick, dry_run=dry_run
    )
    if as_json:
        shown = {
            "steps": [str(step) for step in plan.steps],
            "notes": [dataclasses.asdict(note) for note in plan.notes],
            "done": not dry_run,
        }
        click.echo(json.dumps(shown))
        return
    for step in plan.steps:
        click.echo(step)
    if not plan.steps:
        click.echo("Nothing to do: everything is as it should be.")
    for note in plan.notes:
        click.echo(f"{'ACT' if note.grave else 'note'} {note.name}: {note.text}")
