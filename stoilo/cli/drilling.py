"""What the drill commands share: the list, one drill done and shown."""

from __future__ import annotations

import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import click
import msgspec

if TYPE_CHECKING:
    from stoilo.cli.drills.report import Drill, DrillReport

__all__ = ["NOT_CONTAINED", "list_drills", "perform"]

NOT_CONTAINED = 4
"""Exit code of a drill whose attack was not stopped."""


def list_drills(drills: Sequence[Drill], *, as_json: bool) -> None:
    """Print names and titles."""
    if as_json:
        rows = [{"name": one.name, "title": one.title} for one in drills]
        click.echo(msgspec.json.encode(rows).decode())
        return
    width = max(len(one.name) for one in drills)
    for one in drills:
        click.echo(f"{one.name:<{width}} {one.title}")


def perform(chosen: Drill, *, as_json: bool, defended: bool, code: str) -> bool:
    """Do a drill in a temporary directory and show it; returns whether it was contained.

    Args:
        chosen: the drill.
        as_json: print one object, and no progress.
        defended: False takes the drill's defence away.
        code: of the message that it was not contained.
    """
    from stoilo.cli.drills.report import run_drill  # noqa: PLC0415 - as main does

    if not as_json:
        click.echo(f"{chosen.name}: {chosen.title}")
    with tempfile.TemporaryDirectory(prefix="stoilo-drill-") as folder:
        say = (lambda _: None) if as_json else click.echo
        report = run_drill(chosen, Path(folder), say, defended=defended)
    _show(report, as_json=as_json, code=code)
    return report.contained


def _show(report: DrillReport, *, as_json: bool, code: str) -> None:
    """Print how a drill ended."""
    if as_json:
        click.echo(msgspec.json.encode(report).decode())
        return
    if report.contained:
        click.echo(f"contained in {report.seconds_to_contain:.2f} s")
    else:
        click.echo(f"NOT contained [{code}]")
    click.echo(f"bound: {report.bound}")
