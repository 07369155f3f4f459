"""`stoilo sandbox suite`: anybody's folder of attack and benign programs, run and reported."""

from __future__ import annotations

import os
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path

import click

from stoilo.cli.output import JSON
from stoilo.core.errors import UsageError
from stoilo.core.levels import Level, load_levels
from stoilo.core.types import Severity
from stoilo.policies.gate import GateRequest
from stoilo.policies.jailed import GATE_JOB, Gate
from stoilo.policies.levels import level_names
from stoilo.sandbox.process.supervisor import Jail
from stoilo.sandbox.suite.case import Case, Kind, find_cases, read_case
from stoilo.sandbox.suite.control import Controls
from stoilo.sandbox.suite.programs import preload_of, validator_of
from stoilo.sandbox.suite.report import (
    CaseReport,
    Result,
    render_json,
    render_text,
)
from stoilo.sandbox.suite.runner import CaseRunner, SuiteJails

_TRIVIAL_TASK = b"def task(kwargs):\n    return 1\n"


def _ask_gate(gate: Gate, case: Case, level: str) -> tuple[str, ...]:
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


@click.command()
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
@JSON
def suite(
    folder: Path,
    form: str,
    jobs: int,
    controls: bool,
    level: str | None,
    *,
    as_json: bool,
) -> int:
    """Run every case below FOLDER through the layers and report (docs/reference/cases.md).

    Exit 0 when every case ended as its header says, 4 when one got through or ended
    otherwise, 2 when there is no case or one is broken.
    """
    reports = _run_all(read_cases(folder), jobs, level or "", controls=controls)
    click.echo(
        render_json(reports) if as_json or form == "json" else render_text(reports)
    )
    clean = all(report.result is Result.AS_EXPECTED for report in reports)
    return 0 if clean else 4
