"""What running a suite showed, for people and for programs."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from enum import StrEnum

from stoilo.core.plaintext import show_plainly
from stoilo.sandbox.suite.case import Case

__all__ = ["CaseReport", "Result", "Step", "render_json", "render_text", "summarize"]


class Result(StrEnum):
    """What a case showed."""

    AS_EXPECTED = "as_expected"
    REACHED = "reached"
    OTHERWISE = "otherwise"
    NO_CONTROL = "no_control"


@dataclass(frozen=True, slots=True)
class Step:
    """One run of a case.

    Attributes:
        name: which layers were on.
        level: the level, empty for a control.
        expected: what had to be seen.
        seen: what was; untrusted text.
        held: whether that is as it should be.
        reached: whether the program got what it is after although a layer was on.
        counted: False when a control could not be run here.
    """

    name: str
    level: str
    expected: str
    seen: str
    held: bool
    reached: bool = False
    counted: bool = True


@dataclass(frozen=True, slots=True)
class CaseReport:
    """Every run of one case.

    Attributes:
        case: the case.
        steps: its runs.
        wall_s: elapsed time, s.
    """

    case: Case
    steps: tuple[Step, ...]
    wall_s: float

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


@dataclass(frozen=True, slots=True)
class Summary:
    """Numbers of cases."""

    cases: int
    as_expected: int
    reached: int
    otherwise: int
    no_control: int

    @property
    def clean(self) -> bool:
        """Whether every case showed what its header says."""
        return self.cases == self.as_expected


def summarize(reports: Sequence[CaseReport]) -> Summary:
    """Count the results."""
    found = Counter(report.result for report in reports)
    return Summary(
        cases=len(reports),
        as_expected=found[Result.AS_EXPECTED],
        reached=found[Result.REACHED],
        otherwise=found[Result.OTHERWISE],
        no_control=found[Result.NO_CONTROL],
    )


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
        f"{numbers.cases} cases, {steps} runs: {numbers.as_expected} as expected, "
        f"{numbers.reached} got through, {numbers.otherwise} ended otherwise, "
        f"{numbers.no_control} with a control that reached nothing"
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
    return json.dumps({"summary": asdict(summarize(reports)), "cases": cases})
