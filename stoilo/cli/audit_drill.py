"""`stoilo audit drill`: rehearse what could happen, on a throw-away project."""

from __future__ import annotations

import click

from stoilo.cli.drilling import NOT_CONTAINED, list_drills, perform
from stoilo.core.errors import UsageError

__all__ = ["drill"]


@click.command()
@click.argument("name", required=False)
@click.option("--list", "as_list", is_flag=True, help="Show the drills.")
@click.option(
    "--without-defence",
    is_flag=True,
    help="Take the defence away, to see the drill fail (its control).",
)
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
@click.pass_context
def drill(
    context: click.Context,
    name: str | None,
    *,
    as_list: bool,
    without_defence: bool,
    as_json: bool,
) -> None:
    """Do an attack for real on a throw-away project, and see it contained.

    Nothing of yours is touched: each drill builds a project of its own in a temporary
    directory. Exit code 0: contained, with the time it took; 4: it was not.
    """
    from stoilo.cli.extras import require_extra  # noqa: PLC0415 - as main does

    require_extra("server")
    from stoilo.cli.drills.table import (  # noqa: PLC0415 - loads everything
        DRILLS,
        find_drill,
    )

    if as_list:
        list_drills(DRILLS, as_json=as_json)
        return
    if name is None:
        raise UsageError("STO-L166", "name a drill", hint="--list shows them")
    contained = perform(
        find_drill(name),
        as_json=as_json,
        defended=not without_defence,
        code="STO-L165",
    )
    if not contained:
        context.exit(NOT_CONTAINED)
