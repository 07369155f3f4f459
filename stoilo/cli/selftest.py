"""`stoilo sandbox selftest`: does the jail hold on this machine (design §7)."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import click

from stoilo.cli.extras import require_extra
from stoilo.cli.platforms import check_platform
from stoilo.policies.levels import load_level

if TYPE_CHECKING:
    from stoilo.sandbox.suite.verdicts import Attempt, Row

__all__ = ["render_table", "selftest"]

_CONTROLS = {True: "gets through without it", False: "fails anyway", None: ""}


def _show_attempt(attempt: Attempt) -> str:
    result = "GOT THROUGH" if attempt.reached else "stopped"
    line = f"    {attempt.place:<6}{attempt.words:<50}{result:<13}"
    return (line + _CONTROLS[attempt.control]).rstrip()


def render_table(rows: tuple[Row, ...]) -> Iterator[str]:
    """Return the lines of the table that a person reads."""
    yield f"{'mechanism':<30}{'mandatory':<12}{'state':<10}result"
    for row in rows:
        name = f"{row.mechanism} ({row.detail})" if row.detail else row.mechanism
        mandatory = "yes" if row.mandatory else "no"
        yield f"{name:<30}{mandatory:<12}{row.state.value:<10}{row.verdict.value}"
        yield from map(_show_attempt, row.attempts)


def _as_data(row: Row) -> dict[str, Any]:
    return {
        "mechanism": row.mechanism,
        "mandatory": row.mandatory,
        "state": row.state.value,
        "detail": row.detail or None,
        "result": row.verdict.value,
        "attempts": [
            {
                "place": attempt.place,
                "attempt": attempt.words,
                "through_without": attempt.control,
                "through": attempt.reached,
            }
            for attempt in row.attempts
        ],
    }


@click.command()
@click.option("--level", default="pure", show_default=True, help="Policy level.")
@click.option("--json", "as_json", is_flag=True, help="One JSON object as last line.")
def selftest(level: str, *, as_json: bool) -> int:
    """Try to break every mechanism of the jail on this machine; takes some seconds.

    Each is tried alone, first without it, so that a failure means something ("alone"), and
    in a real run ("jail"). Exit code 0: every mandatory one holds; 3: one is missing, so
    that nothing would be run; 4: one did not hold.
    """
    check_platform()
    require_extra("executor")
    from stoilo.sandbox.suite.selftest import run_selftest  # noqa: PLC0415 - Linux only
    from stoilo.sandbox.suite.verdicts import judge_rows  # noqa: PLC0415 - Linux only

    rows = run_selftest(load_level(level))
    code = judge_rows(rows)
    if as_json:
        data = {
            "level": level,
            "holds": code == 0,
            "mechanisms": [*map(_as_data, rows)],
        }
        click.echo(json.dumps(data))
    else:
        click.echo("\n".join(render_table(rows)))
    return code
