"""`stoilo sandbox`: run, probe, selftest and suite of the jail (design §7)."""

from __future__ import annotations

import json
from typing import Any

import click
import msgspec

from stoilo.cli.groups import TableGroup, command_table
from stoilo.cli.output import JSON, say
from stoilo.cli.shell import LEVEL
from stoilo.cli.sources import read_as_task, read_kwargs, read_program, read_source
from stoilo.core.codec import skeleton
from stoilo.core.codec.json_values import render_json_value
from stoilo.core.errors import UsageError, show_plainly
from stoilo.core.levels import Level
from stoilo.core.libraries import add_libraries, load_libraries
from stoilo.core.types import RunLayer, RunOutcome, RunStatus, Severity
from stoilo.policies.gate import GateRequest
from stoilo.policies.jailed import check_in_child
from stoilo.policies.levels import load_level
from stoilo.sandbox.kernel.filters import Denied
from stoilo.sandbox.process.run import probe_source, run_source
from stoilo.sandbox.suite.selftest import (
    as_data,
    judge_rows,
    render_table,
    run_selftest,
)


@click.command()
@LEVEL
@JSON
def selftest(level: str, *, as_json: bool) -> int:
    """Try to break every mechanism of the jail on this machine; takes some seconds.

    Each is tried alone, first without it, so that a failure means something ("alone"), and
    in a real run ("jail"). Exit code 0: every mandatory one holds; 3: one is missing, so
    that nothing would be run; 4: one did not hold.
    """
    rows = run_selftest(load_level(level))
    code = judge_rows(rows)
    record = {
        "level": level,
        "holds": code == 0,
        "mechanisms": [*map(as_data, rows)],
    }
    say(record, "\n".join(render_table(rows)), as_json=as_json)
    return code


EXIT_CODES = {
    RunStatus.OK: 0,
    RunStatus.REFUSED: 3,
    RunStatus.KILLED: 4,
    RunStatus.USER_ERROR: 5,
}
_SEEN_BY_RUNNING = frozenset({"STO-P029", "STO-P030"})
"""What the gate foretells and a run shows: a limit that is hit, no function to call."""

_TIMEOUT = click.FloatRange(min=0, min_open=True)


def judge_statically(
    source: bytes, entry: str, level: str
) -> tuple[RunOutcome | None, Level]:
    """Return the refusal of what `stoilo policy check` refuses; None where it admits.

    With it the level as the run gets it: with the described libraries that it imports.
    A function that does not exist is no refusal here but a usage error of the run, and
    a constant beyond all memory ends at the limit that it hits.

    Raises:
        UsageError: unknown level.
    """
    verdict = check_in_child(GateRequest(source=source, entry=entry, level=level))
    errors = [
        found
        for found in verdict.findings
        if found.severity is Severity.ERROR and found.code not in _SEEN_BY_RUNNING
    ]
    rules = load_level(level)
    if not errors:
        return None, add_libraries(rules, load_libraries(verdict.libraries))
    first, more = errors[0], len(errors) - 1
    text = f"line {first.line}, column {first.column}: {first.message}; {first.hint}"
    outcome = RunOutcome(
        status=RunStatus.REFUSED,
        error=f"{text} (and {more} more)" if more else text,
        code=first.code,
        layer=RunLayer.GATE,
    )
    return outcome, rules


def read_preload(text: str) -> tuple[str, ...]:
    """Return the module names in a comma-separated list or raise ``STO-S030``."""
    names = tuple(name.strip() for name in text.split(",") if name.strip())
    for name in names:
        if not all(part.isidentifier() for part in name.split(".")):
            raise UsageError("STO-S030", f"not a module name: {name[:80]!r}")
    return names


def render_outcome(outcome: RunOutcome) -> dict[str, Any]:
    """Return the one object of the contract; every key is always there."""
    value = None if outcome.value is None else skeleton.decode(outcome.value)
    try:
        shown = render_json_value(value)
    except UsageError as error:  # an integer of thousands of digits
        return render_outcome(_without_form(outcome, error))
    return {
        "status": outcome.status.value,
        "value": shown,
        "error": outcome.error or None,
        "code": outcome.code or None,
        "layer": outcome.layer.value if outcome.layer else None,
        "output": outcome.output,
        "limit": outcome.limit or None,
        "usage": {
            "cpu_s": round(outcome.usage.cpu_s, 6),
            "wall_s": round(outcome.usage.wall_s, 6),
            "peak_memory_bytes": outcome.usage.peak_memory_bytes,
        },
    }


def _without_form(outcome: RunOutcome, error: UsageError) -> RunOutcome:
    return msgspec.structs.replace(
        outcome,
        status=RunStatus.USER_ERROR,
        value=None,
        error=error.message,
        code=error.code,
        layer=RunLayer.RESULT,
    )


def _show(outcome: RunOutcome, *, as_json: bool, value: bool) -> int:
    click.echo(f"jail: {', '.join(outcome.layers) or 'not entered'}", err=True)
    shown = render_outcome(outcome)
    status = RunStatus(shown["status"])
    if as_json:
        click.echo(json.dumps(shown, allow_nan=False))
        return EXIT_CODES[status]
    click.echo(show_plainly(outcome.output), nl=False)
    if status is not RunStatus.OK:
        text = show_plainly(shown["error"] or "")
        click.echo(f"{status.value}: {text} [{shown['code']}]", err=True)
    elif value:
        click.echo(json.dumps(shown["value"], allow_nan=False))
    return EXIT_CODES[status]


_COMMANDS = {
    "run": ("sandbox", "Run a function through gate, language and kernel layer."),
    "probe": ("sandbox", "Run a plain program through the kernel layer alone."),
    "selftest": ("sandbox", "Try to break every mechanism of the jail here."),
    "suite": ("suite", "Run a folder of attack and benign programs."),
}


@click.group(cls=TableGroup, table=command_table(_COMMANDS))
def sandbox() -> None:
    """Run code in the jail, through both layers or the kernel layer alone."""


@click.command()
@click.argument("file")
@click.option("--entry", help="Function to call; default: the last def of the module.")
@click.option("--kwargs", default="{}", help="The function's dict: JSON or @FILE.")
@LEVEL
@click.option("--timeout", type=_TIMEOUT, help="Wall time, seconds.")
@JSON
def run(
    file: str,
    entry: str | None,
    kwargs: str,
    level: str,
    timeout: float | None,
    as_json: bool,
) -> int:
    """Run a function of FILE through the gate, the language and the kernel layer."""
    load_level(level)  # unknown ones are told before anything is read
    arguments = read_kwargs(kwargs)
    source = read_as_task(read_source(file))
    outcome, rules = judge_statically(source, entry or "", level)
    if outcome is None:
        outcome = run_source(source.decode(), entry, arguments, rules, wall_s=timeout)
    return _show(outcome, as_json=as_json, value=True)


@click.command()
@click.argument("file")
@LEVEL
@click.option("--preload", default="", help="Modules to import first, with commas.")
@click.option("--timeout", type=_TIMEOUT, help="Wall time, seconds.")
@click.option(
    "--denied",
    type=click.Choice(["kill", "errno"]),
    default="kill",
    show_default=True,
    help="What a call outside the level gets: the end, or EPERM and on to the next one.",
)
@JSON
def probe(
    file: str,
    level: str,
    preload: str,
    timeout: float | None,
    denied: str,
    as_json: bool,
) -> int:
    """Run FILE as a plain program through the kernel layer alone."""
    outcome = probe_source(
        read_program(file),
        load_level(level),
        preload=read_preload(preload),
        wall_s=timeout,
        denied=Denied(denied),
    )
    if denied != Denied.KILL:
        click.echo("denied calls failed with EPERM: no task is run so", err=True)
    return _show(outcome, as_json=as_json, value=False)
