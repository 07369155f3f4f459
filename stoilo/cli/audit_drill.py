"""`stoilo audit drill`: rehearse what could happen, on a throw-away project."""

from __future__ import annotations

import click

from stoilo.cli.drilling import DrillTable, Wanted, answer, drill_options

__all__ = ["drill"]


@click.command()
@drill_options
def drill(context: click.Context, wanted: Wanted) -> None:
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

    answer(context, DrillTable(DRILLS, find_drill, "STO-L166", "STO-L165"), wanted)
