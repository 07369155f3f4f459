"""Rehearse an attack or a loss for real, on a throw-away project, and see it contained.

    make drills                          all of them
    python -m tests.drills --list
    python -m tests.drills stolen-gate-key [--without-defence] [--json]

Nothing of yours is touched: each drill builds projects, keys and hosts of its own in a
temporary directory. Exit code 0: contained, with the time it took; 4: it was not.
"""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path

import click
import msgspec

from tests.drills.report import Drill, DrillReport, run_drill
from tests.drills.table import DRILLS

NOT_CONTAINED = 4


@click.command()
@click.argument("name", required=False, type=click.Choice(list(DRILLS)))
@click.option("--list", "as_list", is_flag=True, help="Show the drills.")
@click.option(
    "--without-defence",
    is_flag=True,
    help="Take the defence away, to see the drill fail (its control).",
)
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object a drill.")
def drills(
    *, name: str | None, as_list: bool, without_defence: bool, as_json: bool
) -> None:
    """Do one drill, or all of them."""
    if as_list:
        for one in DRILLS.values():
            click.echo(f"{one.name:<20} {one.title}")
        return
    chosen = [DRILLS[name]] if name else list(DRILLS.values())
    reports = [perform(one, not without_defence, as_json) for one in chosen]
    if not all(report.contained for report in reports):
        sys.exit(NOT_CONTAINED)


def perform(chosen: Drill, defended: bool, as_json: bool) -> DrillReport:
    """Do a drill in a temporary directory and show it."""
    if not as_json:
        click.echo(f"{chosen.name}: {chosen.title}")
    with tempfile.TemporaryDirectory(prefix="stoilo-drill-") as folder:
        say = (lambda _: None) if as_json else click.echo
        report = run_drill(chosen, Path(folder), say, defended=defended)
    if as_json:
        click.echo(msgspec.json.encode(report).decode())
    else:
        ending = "NOT contained"
        if report.contained:
            ending = f"contained in {report.seconds_to_contain:.2f} s"
        click.echo(f"{ending}\nbound: {report.bound}\n")
    return report


if __name__ == "__main__":
    drills(prog_name="python -m tests.drills")
