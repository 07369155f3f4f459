"""What the drill commands share: their words, the list, one drill done and shown."""

from __future__ import annotations

import functools
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import click
import msgspec

from stoilo.core.errors import UsageError

if TYPE_CHECKING:
    from stoilo.cli.drills.report import Drill, DrillReport

__all__ = ["NOT_CONTAINED", "DrillTable", "Wanted", "answer", "drill_options"]

NOT_CONTAINED = 4
"""Exit code of a drill whose attack was not stopped."""


@dataclass(frozen=True, slots=True)
class DrillTable:
    """The drills of one command.

    Attributes:
        drills: all of them.
        find: returns the one of a name.
        unnamed: code of the error that none is named.
        not_contained: code of the message that one was not contained.
    """

    drills: Sequence[Drill]
    find: Callable[[str], Drill]
    unnamed: str
    not_contained: str


@dataclass(frozen=True, slots=True)
class Wanted:
    """What the command line asks for.

    Attributes:
        name: of a drill, None where none is named.
        as_list: show the drills instead.
        without_defence: take the drill's defence away.
        as_json: print one object, and no progress.
    """

    name: str | None
    as_list: bool
    without_defence: bool
    as_json: bool


def drill_options(
    command: Callable[[click.Context, Wanted], None],
) -> Callable[..., None]:
    """Give a command the words of every drill command."""

    @click.argument("name", required=False)
    @click.option("--list", "as_list", is_flag=True, help="Show the drills.")
    @click.option(
        "--without-defence",
        is_flag=True,
        help="Take the defence away, to see the drill fail (its control).",
    )
    @click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
    @click.pass_context
    @functools.wraps(command)
    def called(
        context: click.Context,
        *,
        name: str | None,
        as_list: bool,
        without_defence: bool,
        as_json: bool,
    ) -> None:
        command(context, Wanted(name, as_list, without_defence, as_json))

    return called


def answer(context: click.Context, table: DrillTable, wanted: Wanted) -> None:
    """Do what the command line asks for.

    Raises:
        UsageError: ``table.unnamed``, no drill is named; as ``table.find``.
    """
    if wanted.as_list:
        _list(table.drills, as_json=wanted.as_json)
        return
    if wanted.name is None:
        raise UsageError(table.unnamed, "name a drill", hint="--list shows them")
    chosen = table.find(wanted.name)
    if not _perform(chosen, wanted, table.not_contained):
        context.exit(NOT_CONTAINED)


def _list(drills: Sequence[Drill], *, as_json: bool) -> None:
    """Print names and titles."""
    if as_json:
        rows = [{"name": one.name, "title": one.title} for one in drills]
        click.echo(msgspec.json.encode(rows).decode())
        return
    width = max(len(one.name) for one in drills)
    for one in drills:
        click.echo(f"{one.name:<{width}} {one.title}")


def _perform(chosen: Drill, wanted: Wanted, code: str) -> bool:
    """Do a drill in a temporary directory and show it; returns whether it was contained."""
    from stoilo.cli.drills.report import run_drill  # noqa: PLC0415 - as main does

    if not wanted.as_json:
        click.echo(f"{chosen.name}: {chosen.title}")
    with tempfile.TemporaryDirectory(prefix="stoilo-drill-") as folder:
        say = (lambda _: None) if wanted.as_json else click.echo
        report = run_drill(
            chosen, Path(folder), say, defended=not wanted.without_defence
        )
    _show(report, as_json=wanted.as_json, code=code)
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
