"""`stoilo boinc install`, `doctor` and `migrate`: a stock BOINC project as our engine."""

from __future__ import annotations

import os
from pathlib import Path

import click

from stoilo.cli.output import DATA, FOLDER, JSON, say
from stoilo.core.errors import UsageError
from stoilo.server.config import load_config
from stoilo.server.engines.stock.installation.checks import examine, is_healthy
from stoilo.server.engines.stock.installation.install import (
    install_project,
    read_offer,
)
from stoilo.server.engines.stock.installation.snapshot import read_snapshot
from stoilo.server.engines.stock.project.directory import read_project
from stoilo.server.operations.moving import move_project


@click.command()
@click.argument("project_dir", type=FOLDER)
@click.option("--data", type=FOLDER, help="Data directory of the server: its release.")
@click.option("--release", type=FOLDER, help="A published release, instead.")
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
    if (data is None) == (release is None):
        raise UsageError("STO-U003", "name either --data or --release")
    # the server publishes its release among its keys; public files only are read
    folder = release if release is not None else Path(str(data), "keys")
    plan = install_project(
        project_dir, read_offer(folder), quick=quick, dry_run=dry_run
    )
    record = {
        "steps": [str(step) for step in plan.steps],
        "notes": plan.notes,
        "done": not dry_run,
    }
    lines = list(map(str, plan.steps)) or [
        "Nothing to do: everything is as it should be."
    ]
    for note in plan.notes:
        act = "ACT" if note.grave else "note"
        lines.append(f"{act} {note.name}: {note.text} -> {note.advice}")
    say(record, "\n".join(lines), as_json=as_json)


UNHEALTHY = 4


@click.command()
@click.argument("project_dir", type=FOLDER)
@click.option("--no-web", is_flag=True, help="Do not ask the project's own URLs.")
@JSON
@click.pass_context
def doctor(
    context: click.Context,
    project_dir: Path,
    *,
    no_web: bool,
    as_json: bool,
) -> None:
    """Check a stock BOINC project from end to end; exit 4 when something fails.

    Looks at disk, database, daemons, entry points, backlogs, config.xml, keys, programs and
    URLs, changes nothing, and names causes before what they cause. A private code-sign key
    on the server fails.

    Example: stoilo boinc doctor /srv/project
    """
    findings = examine(read_snapshot(read_project(project_dir), web=not no_web))
    healthy = is_healthy(findings)
    lines = []
    for one in findings:
        what = "fail" if one.grave else "warn"
        advice = f" -> {one.advice}" if one.advice else ""
        lines.append(f"{what}  {one.name}: {one.text}{advice}")
    text = "\n".join(lines) or "Nothing is wrong."
    say({"healthy": healthy, "findings": findings}, text, as_json=as_json)
    if not healthy:
        context.exit(UNHEALTHY)


@click.command()
@DATA
@click.option(
    "--project-dir",
    type=click.Path(path_type=Path, exists=True, file_okay=False),
    required=True,
    help="The stock project, after `stoilo boinc install`.",
)
@click.option(
    "--keys",
    type=click.Choice(["strong", "weak"]),
    default="strong",
    show_default=True,
    help="Which of an account's keys becomes BOINC's one key.",
)
@JSON
def migrate(data: Path, project_dir: Path, keys: str, as_json: bool) -> None:
    """Move accounts, computers, credit and running tasks to a stock project.

    Stop the server first. What is there already is left alone: run it again after anything
    went wrong. Hosts go on by themselves where URL and code-signing key stay the same.
    """
    config, _ = load_config(data.absolute(), {}, os.environ)
    project = read_project(project_dir)
    moved = move_project(config, project.database_url, weak=keys == "weak")
    text = (
        f"moved {moved.users} accounts ({moved.users_there} were there), "
        f"{moved.hosts} computers ({moved.hosts_there} were there); "
        f"{moved.tasks} running tasks begin anew; apps: {', '.join(moved.apps)}"
    )
    say(moved, text, as_json=as_json)
