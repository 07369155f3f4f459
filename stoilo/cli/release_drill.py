"""`stoilo release drill`: rehearse what could happen to release keys."""

from __future__ import annotations

import click

from stoilo.cli.drilling import DrillTable, Wanted, answer, drill_options

__all__ = ["drill"]


@click.command()
@drill_options
def drill(context: click.Context, wanted: Wanted) -> None:
    """Lose or leak a release key for real, on a throw-away project, and see it contained.

    Nothing of yours is touched: each drill makes admins, keys, a release and hosts of its
    own in a temporary directory. Exit code 0: contained, with the time it took; 4: not.
    """
    from stoilo.cli.extras import require_extra  # noqa: PLC0415 - as main does

    require_extra("server")
    from stoilo.cli.drills.release_table import (  # noqa: PLC0415 - loads everything
        RELEASE_DRILLS,
        find_release_drill,
    )

    answer(
        context,
        DrillTable(RELEASE_DRILLS, find_release_drill, "STO-K084", "STO-K085"),
        wanted,
    )
