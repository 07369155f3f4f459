"""`stoilo boinc install`, `doctor` and `migrate`: a stock BOINC project as our engine."""

from __future__ import annotations

import dataclasses
import json
import os
from pathlib import Path

import click

from stoilo.cli.boinc.data import DATA, JSON
from stoilo.core.errors import UsageError, show_plainly

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
    # the server publishes its release among its keys; public files only are read
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
        act = "ACT" if note.grave else "note"
        click.echo(f"{act} {note.name}: {note.text} -> {note.advice}")


UNHEALTHY = 4


@click.command()
@click.argument("project_dir", type=click.Path(path_type=Path, file_okay=False))
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
    from stoilo.server.engines.stock.installation.checks import examine, is_healthy  # noqa: PLC0415
    from stoilo.server.engines.stock.installation.snapshot import read_snapshot  # noqa: PLC0415
    from stoilo.server.engines.stock.project.directory import read_project  # noqa: PLC0415

    findings = examine(read_snapshot(read_project(project_dir), web=not no_web))
    healthy = is_healthy(findings)
    if as_json:
        listed = [dataclasses.asdict(one) for one in findings]
        click.echo(json.dumps({"healthy": healthy, "findings": listed}))
    else:
        for one in findings:
            what = "fail" if one.grave else "warn"
            advice = f" -> {one.advice}" if one.advice else ""
            click.echo(show_plainly(f"{what}  {one.name}: {one.text}{advice}"))
        if not findings:
            click.echo("Nothing is wrong.")
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
    from stoilo.server.config import load_config  # noqa: PLC0415 - extra
    from stoilo.server.engines.stock.project.directory import read_project  # noqa: PLC0415
    from stoilo.server.operations.moving import move_project  # noqa: PLC0415

    config, _ = load_config(data.absolute(), {}, os.environ)
    project = read_project(project_dir)
    moved = move_project(config, project.database_url, weak=keys == "weak")
    if as_json:
        click.echo(json.dumps(dataclasses.asdict(moved)))
        return
    click.echo(
        f"moved {moved.users} accounts ({moved.users_there} were there), "
        f"{moved.hosts} computers ({moved.hosts_there} were there); "
        f"{moved.tasks} running tasks begin anew; apps: {', '.join(moved.apps)}"
    )
