"""`stoilo sandbox filter`: a level's system calls as text for auditors."""

from __future__ import annotations

import click
import msgspec

from stoilo.cli.extras import require_extra
from stoilo.cli.platforms import check_platform
from stoilo.policies.levels import load_level

__all__ = ["show_filter"]


@click.command("filter")
@click.option("--level", default="pure", show_default=True, help="Policy level.")
@click.option(
    "--json", "as_json", is_flag=True, help="One JSON object, without listings."
)
def show_filter(level: str, as_json: bool) -> int:
    """Print what system calls are open at a level and why, then the filters themselves.

    The listings are read back from the bytes that processes load on this machine: runs,
    their zygote, and the process that waits for it.
    Example: stoilo sandbox filter --level numeric
    """
    check_platform()
    require_extra("executor")
    from stoilo.sandbox.kernel.filter_text import audit_level, render_filter  # noqa: PLC0415 - Linux only

    rules = load_level(level)
    if as_json:
        click.echo(msgspec.json.encode(audit_level(rules)).decode())
    else:
        click.echo(render_filter(rules), nl=False)
    return 0
