"""`stoilo sandbox filter`: a level's system calls as text for auditors."""

from __future__ import annotations

import click

from stoilo.cli.extras import require_extra
from stoilo.cli.platforms import check_platform
from stoilo.policies.levels import load_level

__all__ = ["show_filter"]


@click.command("filter")
@click.option("--level", default="pure", show_default=True, help="Policy level.")
def show_filter(level: str) -> int:
    """Print the system call filter of a level: in words, then instruction by instruction.

    What is printed is read back from the bytes that a jailed process loads on this machine.
    """
    check_platform()
    require_extra("executor")
    from stoilo.sandbox.filter_text import render_filter  # noqa: PLC0415 - Linux only

    click.echo(render_filter(load_level(level)), nl=False)
    return 0
