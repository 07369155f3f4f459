"""How a run of a case ended, whether that is as its header says, and what a suite showed."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from enum import StrEnum

from stoilo.core.errors import show_plainly
from stoilo.core.types import RunOutcome, RunStatus
from stoilo.sandbox.process.report import JailReport
from stoilo.sandbox.suite.case import Case, Header, Stop


class Result(StrEnum):
    """What a case showed."""

    AS_EXPECTED = "as_expected"
    REACHED = "reached"
    OTHERWISE = "otherwise"
    NO_CONTROL = "no_control"


@dataclass(frozen=True, slots=True)
class Step:
    """One run of a case."""

    name: str  # which layers were on
    level: str  # the level, empty for a control
    expected: str  # what had to be seen
    seen: str  # what was; untrusted text
    held: bool  # whether that is as it should be
    # Whether the program got what it is after although a layer was on
    reached: bool = False
    counted: bool = True  # False when a control could not be run here


@dataclass(frozen=True, slots=True)
class CaseReport:
    """Every run of one case."""

    case: Case  # the case
    steps: tuple[Step, ...]  # its runs
    wall_s: float  # elapsed time, s

    @property
    def result(self) -> Result:
        """Return what the case showed, the worst first."""
        if any(step.reached for step in self.steps):
            return Result.REACHED
        broken = [step for step in self.steps if not step.held]
        if any(step.name != "control" for step in broken):
            return Result.OTHERWISE
        return Result.NO_CONTROL if broken else Result.AS_EXPECTED

    @property
    def counted(self) -> bool:
        """Whether the case proves something here: its control was not left out."""
        return all(step.counted for step in self.steps)

    def describe(self) -> str:
        """Return the case and its runs as lines for people."""
        return "\n".join(_case_lines(self))


def summarize(reports: Sequence[CaseReport]) -> dict[str, int]:
    """Return how many cases there are, and how many showed each result."""
    found = Counter(report.result for report in reports)
    return {"cases": len(reports)} | {str(one): found[one] for one in Result}


def _case_lines(report: CaseReport) -> Iterator[str]:
    yield f"{report.result}: {report.case.name} ({report.case.header.idea})"
    for step in report.steps:
        if not step.held or step.reached:
            where = f"{step.name} at {step.level}" if step.level else step.name
            yield f"  {where}: expected {step.expected}"
            yield f"    saw {show_plainly(step.seen)}"


def render_text(reports: Sequence[CaseReport]) -> str:
    """Return what went otherwise, case by case, and the numbers as the last line."""
    lines = [
        report.describe()
        for report in reports
        if report.result is not Result.AS_EXPECTED
    ]
    numbers = summarize(reports)
    steps = sum(len(report.steps) for report in reports)
    lines.append(
        f"{numbers['cases']} cases, {steps} runs: {numbers['as_expected']} as expected, "
        f"{numbers['reached']} got through, {numbers['otherwise']} ended otherwise, "
        f"{numbers['no_control']} with a control that reached nothing"
    )
    return "\n".join(lines)


def render_json(reports: Sequence[CaseReport]) -> str:
    """Return one JSON object: ``summary`` and ``cases``, in the order of their names."""
    cases = [
        {
            "name": report.case.name,
            "idea": report.case.header.idea,
            "run": report.case.header.run.value,
            "stopped_by": report.case.header.stopped_by.value or None,
            "result": report.result.value,
            "counted": report.counted,
            "wall_s": round(report.wall_s, 3),
            "steps": [asdict(step) for step in report.steps],
        }
        for report in reports
    ]
    return json.dumps({"summary": summarize(reports), "cases": cases})


# How one run of a case ended, and whether that is what its header says ----------------


_SHOWN_CHARS = 200
_DENIALS = ("PermissionError", "OSError", "BlockingIOError", "FileNotFoundError")
"""How Python tells of a call that failed."""

_REASONS = ("Permission denied", "Operation not permitted")
"""How native libraries tell of it, in errors of their own."""


@dataclass(frozen=True, slots=True)
class Ending:
    """What is known of one run; texts are untrusted."""

    status: str  # as `RunOutcome.status`, ``fault`` when the jail itself failed
    layer: str = ""  # who decided, empty when the program ended by itself
    codes: tuple[str, ...] = ()  # stable codes; the gate has one for each finding
    limit: str = ""  # the limit that was hit
    syscall: str = ""  # the call at which the kernel layer killed it
    error: str = ""  # the reason
    value: bytes = b""  # the returned value's encoded bytes
    output: str = ""  # what was printed
    verdict: str = ""  # a validator's answer

    @property
    def texts(self) -> tuple[str, ...]:
        """Everything that came out of the run, to look for tokens in."""
        return (self.value.decode("latin-1"), self.output, self.error)

    def describe(self) -> str:
        """Return one line for people."""
        who = f" by {self.layer}" if self.layer else ""
        named = self.syscall or self.limit or self.verdict
        codes = " ".join(dict.fromkeys(filter(None, self.codes)))
        parts = [f"{self.status}{who}", codes, named, self.error[:_SHOWN_CHARS]]
        return ", ".join(filter(None, parts))


def from_outcome(outcome: RunOutcome, report: JailReport) -> Ending:
    """Return the ending of a run in a jail."""
    return Ending(
        status=outcome.status.value,
        layer=outcome.layer.value if outcome.layer else "",
        codes=(outcome.code,) if outcome.code else (),
        limit=outcome.limit,
        syscall=report.syscall,
        error=outcome.error,
        value=outcome.value or b"",
        output=outcome.output,
    )


def is_expected(header: Header, ending: Ending) -> bool:
    """Whether a run with every layer on ended as the header says."""
    if header.stopped_by is Stop.NONE:
        return ending.status == RunStatus.OK
    if header.code and header.code not in ending.codes:
        return False
    return _is_stopped(header, ending)


def _is_stopped(header: Header, ending: Ending) -> bool:
    match header.stopped_by:
        case Stop.KERNEL:
            return _is_denied(header, ending)
        case Stop.LIMITS if header.limit:
            return (ending.layer, ending.limit) == (Stop.LIMITS, header.limit)
        case Stop.VALIDATION:
            return header.verdict in {"", ending.verdict} and ending.verdict != "true"
        case Stop.LANGUAGE | Stop.LIMITS if not header.code:
            return ending.layer in {"", header.stopped_by}  # swallowed, without effect
        case _:
            return ending.layer == header.stopped_by


def _is_denied(header: Header, ending: Ending) -> bool:
    if header.syscall:
        killed = ending.status == RunStatus.KILLED and ending.layer == Stop.KERNEL
        return killed and ending.syscall.startswith(header.syscall)
    if header.error:
        return ending.status == RunStatus.USER_ERROR and ending.error.startswith(
            header.error
        )
    return ending.status != RunStatus.REFUSED


def is_denied_by_kernel(ending: Ending) -> bool:
    """Whether a program that only the kernel layer holds really came up against it.

    One that fails before it tries anything would say nothing about that layer.
    """
    if ending.layer in {Stop.KERNEL, Stop.LIMITS}:
        return True
    return ending.error.startswith(_DENIALS) or any(
        reason in ending.error for reason in _REASONS
    )


def describe_expected(header: Header) -> str:
    """Return what the header asks for, as one line."""
    if header.stopped_by is Stop.NONE:
        return "ok, as in plain CPython"
    named = (header.code, header.syscall, header.limit, header.verdict, header.error)
    return ", ".join(filter(None, (f"stopped by {header.stopped_by}", *named)))
