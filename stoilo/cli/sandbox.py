"""`stoilo sandbox`: run, probe, selftest and suite of the jail (design §7)."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
import msgspec

from stoilo.cli.extras import check_platform, require_extra
from stoilo.cli.policy import read_as_task, read_source
from stoilo.core.codec import skeleton
from stoilo.core.codec.json_values import parse_json_value, render_json_value
from stoilo.core.codec.nodes import Node
from stoilo.core.errors import UsageError, show_plainly
from stoilo.core.levels import Level, load_levels
from stoilo.core.types import BOUNDS, RunLayer, RunOutcome, RunStatus, Severity
from stoilo.policies.gate import GateRequest
from stoilo.policies.jailed import GATE_JOB, Gate, check_in_child
from stoilo.policies.levels import level_names, load_level

if TYPE_CHECKING:
    from stoilo.sandbox.suite.case import Case
    from stoilo.sandbox.suite.report import CaseReport
    from stoilo.sandbox.suite.runner import CaseRunner


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
        as_data,
        judge_rows,
        render_table,
        run_selftest,
    )

    rows = run_selftest(load_level(level))
    code = judge_rows(rows)
    if as_json:
        data = {
            "level": level,
            "holds": code == 0,
            "mechanisms": [*map(as_data, rows)],
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
    given = read_source(text[1:], _KWARGS_BYTES) if text.startswith("@") else text
    node = parse_json_value(given)
    if not isinstance(node, dict):
        raise UsageError("STO-D009", "--kwargs must be one JSON object")
    return node


def read_program(file: str) -> str:
    """Return a program's text or raise ``STO-U004``."""
    try:
        return read_source(file, BOUNDS.source_bytes).decode("utf-8")
    except UnicodeDecodeError as error:
        raise UsageError("STO-U004", f"{file} is not UTF-8: {error.reason}") from error


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
    source = read_as_task(read_source(file))
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
        read_program(file),
        load_level(level),
        preload=read_preload(preload),
        wall_s=timeout,
        denied=Denied(denied),
    )
    if denied != Denied.KILL:
        click.echo("denied calls failed with EPERM: no task is run so", err=True)
    return _show(outcome, as_json=as_json, value=False)


# Anybody's folder of attack and benign programs ---------------------------------------


_TRIVIAL_TASK = b"def task(kwargs):\n    return 1\n"


def _ask_gate(gate: Gate, case: Case, level: str) -> tuple[str, ...]:
    from stoilo.sandbox.suite.case import Kind  # noqa: PLC0415 - Linux only
    from stoilo.sandbox.suite.programs import validator_of  # noqa: PLC0415

    if case.header.run is Kind.RESULT:
        return ()
    request = GateRequest(source=case.program, level=level)
    if case.header.run is Kind.VALIDATOR:
        entries = (validator_of(case),)
        request = GateRequest(
            _TRIVIAL_TASK, case.program, level=level, validator_entries=entries
        )
    return tuple(
        found.code
        for found in gate.judge(request).findings
        if found.severity is Severity.ERROR
    )


def _levels_up_to(widest: str) -> tuple[Level, ...]:
    levels = load_levels()
    names = [level.name for level in levels]
    return levels[: names.index(widest) + 1] if widest else levels


@contextmanager
def open_runner(
    cases: list[Case], *, controls: bool, widest: str = ""
) -> Iterator[CaseRunner]:
    """Make warm jails for `cases`, and a runner for them.

    Args:
        cases: what will be run; probes can import only what these seem to need.
        widest: the last level at which they are run, empty for the last that there is.
        controls: whether the programs are also run without any layer.

    Raises:
        PolicyRefusal: this host cannot make the jail.
    """
    from stoilo.sandbox.process.supervisor import Jail  # noqa: PLC0415
    from stoilo.sandbox.suite.control import Controls  # noqa: PLC0415 - Linux only
    from stoilo.sandbox.suite.programs import preload_of  # noqa: PLC0415
    from stoilo.sandbox.suite.runner import (  # noqa: PLC0415
        CaseRunner,
        SuiteJails,
    )

    levels = _levels_up_to(widest)
    with (
        Jail(levels[0], GATE_JOB) as gate_jail,
        SuiteJails(levels, preload_of(cases)) as jails,
        Controls() as plain,
    ):
        gate = Gate(gate_jail)
        yield CaseRunner(
            jails,
            lambda case, level: _ask_gate(gate, case, level),
            controls=plain if controls else None,
            is_root=os.geteuid() == 0,
        )


def read_cases(folder: Path) -> list[Case]:
    """Return every case below `folder`, by name.

    Raises:
        UsageError: ``STO-S040``, one is broken or there is none.
    """
    from stoilo.sandbox.suite.case import find_cases, read_case  # noqa: PLC0415

    cases = [read_case(path, folder) for path in find_cases(folder)]
    if not cases:
        raise UsageError("STO-S040", f"there is no case below {folder}")
    return cases


def _run_all(
    cases: list[Case], jobs: int, widest: str, *, controls: bool
) -> list[CaseReport]:
    known = {"", *(level.name for level in _levels_up_to(widest))}
    cases = [case for case in cases if case.header.level in known]
    with (
        open_runner(cases, controls=controls, widest=widest) as runner,
        ThreadPoolExecutor(jobs) as pool,
    ):
        return list(pool.map(runner.run, cases))


@sandbox.command()
@click.argument("folder", type=click.Path(exists=True, file_okay=False, path_type=Path))
@click.option(
    "--format",
    "form",
    type=click.Choice(["text", "json"]),
    default="text",
    show_default=True,
    help="How the report is written.",
)
@click.option(
    "--jobs",
    type=click.IntRange(1, 64),
    default=os.cpu_count() or 1,
    help="Cases at a time; default: one a processor.",
)
@click.option(
    "--controls",
    is_flag=True,
    help="First run each program WITHOUT any sandbox, to see that it would reach its goal.",
)
@click.option(
    "--level",
    type=click.Choice(level_names()),
    help="Run nothing at wider levels than this.",
)
def suite(folder: Path, form: str, jobs: int, controls: bool, level: str | None) -> int:
    """Run every case below FOLDER through the layers and report (docs/reference/cases.md).

    Exit 0 when every case ended as its header says, 4 when one got through or ended
    otherwise, 2 when there is no case or one is broken.
    """
    check_platform()
    require_extra("executor")
    from stoilo.sandbox.suite.report import (  # noqa: PLC0415 - Linux only
        Result,
        render_json,
        render_text,
    )

    reports = _run_all(read_cases(folder), jobs, level or "", controls=controls)
    click.echo(render_json(reports) if form == "json" else render_text(reports))
    clean = all(report.result is Result.AS_EXPECTED for report in reports)
    return 0 if clean else 4
