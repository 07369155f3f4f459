"""`stoilo boinc migrate`: from the embedded project to a stock one."""

from __future__ import annotations

import dataclasses
import json
import os
from pathlib import Path

import click

from stoilo.cli.boinc.data import DATA, JSON


@click.command()
@DATA
@click.option(
    "--project-dir",
    type=click.Path(path_type=Path, exists=True, file_okay=False),
    required=True,
    help="The stock project, after `stoilo boinc install`.",
)
@click.option(
    "--dry-run", is_flag=True, help="Count what would be moved; write nothing."
)
@click.option(
    "--keys",
    type=click.Choice(["strong", "weak"]),
    default="strong",
    show_default=True,
    help="Which of an account's keys becomes BOINC's one key.",
)
@JSON
def migrate(
    data: Path, project_dir: Path, dry_run: bool, keys: str, as_json: bool
) -> None:
    """Move accounts, computers, credit and running tasks to a stock project.

    Stop the server first. What is there already is left alone: run it again after anything
    went wrong. Hosts go on by themselves where URL and code-signing key stay the same.
    """
    from stoilo.server.config import load_config  # noqa: PLC0415 - extra
    from stoilo.server.engines.stock.project.directory import read_project  # noqa: PLC0415
    from stoilo.server.operations.moving import move_project  # noqa: PLC0415

    config, _ = load_config(data.absolute(), {}, os.environ)
    project = read_project(project_dir)
    moved = move_project(
        config, project.database_url, weak=keys == "weak", dry_run=dry_run
    )
    if as_json:
        click.echo(json.dumps({"dry_run": dry_run, **dataclasses.asdict(moved)}))
        return
    would = "would move" if dry_run else "moved"
    click.echo(
        f"{would} {moved.users} accounts ({moved.users_there} were there), "
        f"{moved.hosts} computers ({moved.hosts_there} were there); "
        f"{moved.tasks} running tasks begin anew; apps: {', '.join(moved.apps)}"
    )
