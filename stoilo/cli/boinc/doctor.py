"""`stoilo boinc doctor`: what is wrong with a stock project, and why."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path

import click

from stoilo.cli.boinc.data import JSON
from stoilo.core.plaintext import show_plainly

UNHEALTHY = 4


@click.command()
@click.argument("project_dir", type=click.Path(path_type=Path, file_okay=False))
@click.option("--no-web", is_flag=True, help="Do not ask the project's own URLs.")
@click.option("--quiet", is_flag=True, help="Only what is not well.")
@JSON
@click.pass_context
def doctor(
    context: click.Context,
    project_dir: Path,
    *,
    no_web: bool,
    quiet: bool,
    as_json: bool,
) -> None:
    """Check a stock BOINC project from end to end; exit 4 when something fails.

    Looks at disk, database, daemons, entry points, backlogs, config.xml, keys, programs and
    URLs, changes nothing, and names causes before what they cause. A private code-sign key
    on the server fails.

    Example: stoilo boinc doctor /srv/project --quiet
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
            if quiet and one.verdict in {"ok", "skip"}:
                continue
            advice = f" -> {one.advice}" if one.advice else ""
            click.echo(show_plainly(f"{one.verdict:4}  {one.name}: {one.text}{advice}"))
    if not healthy:
        context.exit(UNHEALTHY)
