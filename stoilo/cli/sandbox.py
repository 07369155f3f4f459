"""`stoilo sandbox`: run, probe, selftest and suite of the jail (design §7)."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
import msgspec

from stoilo.cli.extras import check_platform, require_extra
from stoilo.cli.policy import read_as_task
from stoilo.cli.suite import suite
from stoilo.core.codec import skeleton
from stoilo.core.codec.json_values import parse_json_value, render_json_value
from stoilo.core.codec.nodes import Node
from stoilo.core.errors import UsageError
from stoilo.core.limits import BOUNDS
from stoilo.core.plaintext import show_plainly
from stoilo.core.types import RunLayer, RunOutcome, RunStatus, Severity
from stoilo.policies.gate import GateRequest
from stoilo.policies.jailed import check_in_child
from stoilo.policies.levels import load_level

if TYPE_CHECKING:
    from stoilo.sandbox.suite.attempts import Attempted
    from stoilo.sandbox.suite.selftest import Row


_CONTROLS = {True: "gets through without it", False: "fails anyway", None: ""}


def _show_attempt(attempt: Attempted) -> str:
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
    from stoilo.sandbox.suite.selftest import (  # noqa: PLC0415 - Linux only
        judge_rows,
        run_selftest,
    )

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


EXIT_CODES = {
    RunStatus.OK: 0,
    RunStatus.REFUSED: 3,
    RunStatus.KILLED: 4,
    RunStatus.USER_ERROR: 5,
}
_SEEN_BY_RUNNING = frozenset({"STO-P029", "STO-P030"})
"""What the gate foretells and a run shows: a limit that is hit, no function to call."""

_KWARGS_BYTES = 64 * 1024 * 1024
_TIMEOUT = click.FloatRange(min=0, min_open=True)


def read_bytes(path: str) -> bytes:
    """Return a program's bytes, cut off beyond what any source may have.

    Raises:
        UsageError: ``STO-U004``, not readable.
    """
    try:
        with Path(path).open("rb") as file:
            return file.read(BOUNDS.source_bytes + 1)
    except OSError as error:
        raise UsageError("STO-U004", f"cannot read {path}: {error.strerror}") from error


def read_source(path: str) -> str:
    """Return a program's text or raise ``STO-U004``."""
    data = read_bytes(path)
    if len(data) > BOUNDS.source_bytes:
        raise UsageError("STO-U004", f"{path} is over {BOUNDS.source_bytes} bytes")
    try:
        return data.decode("utf-8")
    except UnicodeDecodeError as error:
        raise UsageError("STO-U004", f"{path} is not UTF-8: {error.reason}") from error


def refuse_statically(source: bytes, entry: str, level: str) -> RunOutcome | None:
    """Return the refusal of what `stoilo policy check` refuses; None where it admits.

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
    if not errors:
        return None
    first, more = errors[0], len(errors) - 1
    text = f"line {first.line}, column {first.column}: {first.message}; {first.hint}"
    return RunOutcome(
        status=RunStatus.REFUSED,
        error=f"{text} (and {more} more)" if more else text,
        code=first.code,
        layer=RunLayer.GATE,
    )


def read_kwargs(text: str) -> Node:
    """Return the dict that ``--kwargs`` (JSON or @FILE) names, or raise ``STO-D009``."""
    data: str | bytes = text
    if text.startswith("@"):
        try:
            with Path(text[1:]).open("rb") as file:
                data = file.read(_KWARGS_BYTES + 1)
        except OSError as error:
            raise UsageError(
                "STO-U004", f"cannot read {text[1:]}: {error.strerror}"
            ) from error
    node = parse_json_value(data)
    if not isinstance(node, dict):
        raise UsageError("STO-D009", "--kwargs must be one JSON object")
    return node


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


@click.group()
def sandbox() -> None:
    """Run code in the jail, through both layers or the kernel layer alone."""


sandbox.add_command(selftest)


@sandbox.command()
@click.argument("file")
@click.option("--entry", help="Function to call; default: the last def of the module.")
@click.option("--kwargs", default="{}", help="The function's dict: JSON or @FILE.")
@click.option("--level", default="pure", show_default=True, help="Policy level.")
@click.option("--timeout", type=_TIMEOUT, help="Wall time, seconds.")
@click.option("--json", "as_json", is_flag=True, help="One JSON object as last line.")
def run(
    file: str,
    entry: str | None,
    kwargs: str,
    level: str,
    timeout: float | None,
    as_json: bool,
) -> int:
    """Run a function of FILE through the gate, the language and the kernel layer."""
    check_platform()
    require_extra("executor")
    from stoilo.sandbox.process.run import run_source  # noqa: PLC0415 - Linux only

    rules, arguments = load_level(level), read_kwargs(kwargs)
    source = read_as_task(read_bytes(file))
    outcome = refuse_statically(source, entry or "", level) or run_source(
        source.decode(), entry, arguments, rules, wall_s=timeout
    )
    return _show(outcome, as_json=as_json, value=True)


@sandbox.command()
@click.argument("file")
@click.option("--level", default="pure", show_default=True, help="Policy level.")
@click.option("--preload", default="", help="Modules to import first, with commas.")
@click.option("--timeout", type=_TIMEOUT, help="Wall time, seconds.")
@click.option(
    "--denied",
    type=click.Choice(["kill", "errno"]),
    default="kill",
    show_default=True,
    help="What a call outside the level gets: the end, or EPERM and on to the next one.",
)
@click.option("--json", "as_json", is_flag=True, help="One JSON object as last line.")
def probe(
    file: str,
    level: str,
    preload: str,
    timeout: float | None,
    denied: str,
    as_json: bool,
) -> int:
    """Run FILE as a plain program through the kernel layer alone."""
    check_platform()
    require_extra("executor")
    from stoilo.sandbox.kernel.filters import Denied  # noqa: PLC0415 - likewise
    from stoilo.sandbox.process.run import probe_source  # noqa: PLC0415 - Linux only

    outcome = probe_source(
        read_source(file),
        load_level(level),
        preload=read_preload(preload),
        wall_s=timeout,
        denied=Denied(denied),
    )
    if denied != Denied.KILL:
        click.echo("denied calls failed with EPERM: no task is run so", err=True)
    return _show(outcome, as_json=as_json, value=False)


sandbox.add_command(suite)
