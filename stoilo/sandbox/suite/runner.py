"""Runs one case in every way that says something about a layer, in warm jails.

1. control: every layer off. An attack must reach its goal, or the case proves nothing.
2. every layer on: it ends where and as its header says, and reaches nothing.
3. the layer that stopped it off: what is behind it must hold alone.
"""

from __future__ import annotations

import dataclasses
import sys
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Self

from stoilo.core.codec import skeleton
from stoilo.core.errors import InternalError, TrustError, UsageError
from stoilo.core.levels import Level
from stoilo.core.libraries import Library, add_libraries
from stoilo.core.types import RunLimits, RunOutcome, RunStatus
from stoilo.sandbox.kernel.filters import Denied
from stoilo.sandbox.process.channel import (
    PROBE_JOB,
    TASK_JOB,
    VALIDATE_JOB,
    TaskRequest,
)
from stoilo.sandbox.process.report import (
    JailReport,
    JailStatus,
    read_outcome,
)
from stoilo.sandbox.process.run import encode_probe, read_probe
from stoilo.sandbox.process.supervisor import Jail
from stoilo.sandbox.suite.case import Case, Goal, Kind, Stop
from stoilo.sandbox.suite.control import ControlRun, Controls
from stoilo.sandbox.suite.programs import (
    LIBRARIES,
    NOW,
    REACHED,
    Ground,
    arguments_of,
    as_probe,
    imports_of,
    libraries_of,
    validator_of,
)
from stoilo.sandbox.suite.report import (
    CaseReport,
    Ending,
    Step,
    describe_expected,
    from_outcome,
    is_denied_by_kernel,
    is_expected,
)

# Warm jails for a suite: one of each job and level, made when first needed ------------


class SuiteJails:
    """Jails shared by all cases of a suite; thread-safe."""

    def __init__(self, levels: Iterable[Level], preload: tuple[str, ...]) -> None:
        self.levels: Mapping[str, Level] = {level.name: level for level in levels}
        self.preload = preload
        self._open: dict[tuple[str, str, Denied, tuple[str, ...]], Jail] = {}
        self._lock = threading.Lock()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_details: object) -> None:
        self.close()

    def close(self) -> None:
        """End every jail."""
        with self._lock:
            while self._open:
                self._open.popitem()[1].close()

    def get(
        self,
        job: str,
        level: str,
        denied: Denied = Denied.KILL,
        libraries: tuple[Library, ...] = (),
    ) -> Jail:
        """Return the jail for tasks, validators or plain programs (the kernel layer alone)."""
        key = (job, level, denied, tuple(one.digest for one in libraries))
        with self._lock:
            if key not in self._open:
                chosen = add_libraries(self.levels[level], libraries)
                preload = self._preload_for(chosen) if job == PROBE_JOB else ()
                self._open[key] = Jail(chosen, job, preload=preload, denied=denied)
            return self._open[key]

    def _preload_for(self, level: Level) -> tuple[str, ...]:
        absent = LIBRARIES - {name.partition(".")[0] for name in level.preload}
        return tuple(
            name for name in self.preload if name.partition(".")[0] not in absent
        )


GateOf = Callable[[Case, str], tuple[str, ...]]
"""The gate: a case and a level → the codes for which it refuses, () when it admits."""

MIB = 1 << 20
ATTACK_LIMITS = RunLimits(
    cpu_s=5, wall_s=20, memory_bytes=512 * MIB, result_bytes=MIB, output_bytes=64 << 10
)
"""Limits of a case that names no others; a benign program has its level's defaults."""


@dataclass(frozen=True, slots=True)
class CaseRunner:
    """Runs cases; thread-safe."""

    jails: SuiteJails  # warm jails of every level
    gate: GateOf  # asked about a case's source before it runs
    # Runs the programs without any layer as well; None: they are not
    controls: Controls | None = None
    is_root: bool = False  # whether controls may do what only root may

    def run(self, case: Case) -> CaseReport:
        """Run one case (hostile) in every way that its header calls for.

        Raises:
            UsageError: ``STO-S040``, it names a level or a limit that does not exist.
            PolicyRefusal: this host cannot make the jail.
        """
        begun = time.monotonic()
        with Ground.make() as ground:
            steps = tuple(_CaseRun(self, case, ground).steps())
        return CaseReport(case, steps, time.monotonic() - begun)


@dataclass(frozen=True, slots=True)
class _CaseRun:
    """One case on its ground."""

    runner: CaseRunner
    case: Case
    ground: Ground

    def steps(self) -> Iterator[Step]:
        if self.case.benign:
            yield from self._benign_steps()
            return
        if self.runner.controls is not None:
            yield self._control(self.runner.controls)
        if self.case.header.run is Kind.PROBE:
            yield from self._probe_steps()
        else:
            for level in self._levels():
                yield from self._layered_steps(level)

    # Levels and limits

    def _levels(self) -> tuple[str, ...]:
        header, known = self.case.header, tuple(self.runner.jails.levels)
        if header.level and header.level not in known:
            raise self._broken(f"there is no level {header.level[:40]!r}")
        first = known.index(header.level) if header.level else 0
        probes_all = header.run is Kind.PROBE and not header.level
        return known[first:] if header.wider or probes_all else known[first : first + 1]

    def _level(self) -> Level:
        return self.runner.jails.levels[self._levels()[0]]

    def _limits(self, level: str) -> RunLimits:
        defaults = self.runner.jails.levels[level].default_limits()
        limits = defaults if self.case.benign else ATTACK_LIMITS
        try:
            return dataclasses.replace(limits, **self.case.header.limits)
        except TypeError as error:
            raise self._broken("limits names one that does not exist") from error

    def _broken(self, reason: str) -> UsageError:
        return UsageError("STO-S040", f"the case {self.case.name}: {reason}")

    # Ways to run

    def _gate(self, level: str) -> Ending | None:
        codes = self.runner.gate(self.case, level)
        return Ending("refused", Stop.GATE.value, codes) if codes else None

    def _jail(self, job: str, level: str) -> Jail:
        libraries = libraries_of(self.case, self.runner.jails.levels[level])
        return self.runner.jails.get(job, level, Denied.KILL, libraries)

    def _task(self, level: str) -> Ending:
        arguments = skeleton.encode(arguments_of(self.case, self.ground))
        request = TaskRequest(self.case.text, "run", arguments, now=NOW)
        jail = self._jail(TASK_JOB, level)
        report = jail.run(request.encode(), self._limits(level))
        return _read(read_outcome, report)

    def _validator(self, level: str) -> Ending:
        op = validator_of(self.case)
        value = skeleton.encode(arguments_of(self.case, self.ground))
        fields = {"source": self.case.text, "op": op, "entry": op}
        values = [value] * (1 if op == "init" else 2)
        request = skeleton.encode({**fields, "values": values})
        jail = self._jail(VALIDATE_JOB, level)
        return _read_verdict(jail.run(request, self._limits(level)))

    def _probe(self, level: str, denied: Denied = Denied.KILL) -> Ending:
        allowed = imports_of(self.case) | set(self.runner.jails.levels[level].preload)
        source = as_probe(self.case, self.ground)
        request = encode_probe(source, tuple(sorted(allowed)))
        jail = self.runner.jails.get(PROBE_JOB, level, denied)
        report = jail.run(request, self._limits(level))
        forged = self.case.header.run is Kind.RESULT
        return _read(read_outcome if forged else read_probe, report)

    def _layered(self, level: str, *, gate: bool) -> Ending:
        if gate and (refused := self._gate(level)) is not None:
            return refused
        match self.case.header.run:
            case Kind.CHECK:
                return Ending("ok")
            case Kind.RESULT:
                return self._probe(level)
            case Kind.VALIDATOR:
                return self._validator(level)
            case _:
                return self._task(level)

    # Steps

    def _was_reached(self, *texts: str) -> bool:
        outside = self.ground.was_reached(*texts)
        if self.case.header.goal is Goal.OUTSIDE:
            return outside
        return outside or any(REACHED in text for text in texts)

    def _step(self, name: str, level: str, ending: Ending, *, strict: bool) -> Step:
        # Judge a run that must reach nothing and, if `strict`, end as the header says
        shown = (
            ending.texts[:2] if self.case.header.goal is Goal.INSIDE else ending.texts
        )
        reached = self._was_reached(*shown)
        if self.case.header.goal is Goal.INSIDE and ending.verdict == "true":
            reached = True
        held = not reached and (not strict or is_expected(self.case.header, ending))
        expected = describe_expected(self.case.header) if strict else "reaches nothing"
        return Step(name, level, expected, ending.describe(), held, reached)

    def _control(self, controls: Controls) -> Step:
        control = self.case.header.control
        if control == "none" or (control == "root" and not self.runner.is_root):
            seen = f"not run here: control is {control!r}"
            return Step("control", "", "", seen, held=True, counted=False)
        done = controls.run(self.case, self.ground, self._level())
        reached = self._was_reached(done.output, done.errors)
        seen = "reached" if reached else f"status {done.status}: {done.errors[-300:]}"
        needed = control != "host" and not self._is_first_open_later()
        held, counted = reached or not needed, reached or needed
        return Step("control", "", "reaches its goal", seen, held=held, counted=counted)

    def _is_first_open_later(self) -> bool:
        # Whether this CPython is older than the one in which the hole was seen
        first = self.case.header.first_python
        return bool(first) and sys.version_info[:3] < tuple(map(int, first.split(".")))

    def _probe_steps(self) -> Iterator[Step]:
        for level in self._levels():
            yield self._step("kernel", level, self._probe(level), strict=True)
            if self.case.header.stopped_by is Stop.KERNEL:
                ending = self._probe(level, Denied.ERRNO)
                yield self._step("kernel, errno", level, ending, strict=False)

    def _layered_steps(self, level: str) -> Iterator[Step]:
        header = self.case.header
        first = self._layered(level, gate=True)
        yield self._step("every layer", level, first, strict=True)
        if header.run in {Kind.CHECK, Kind.RESULT}:
            return
        if first.layer == Stop.GATE:
            ending = self._layered(level, gate=False)
            yield self._step("without the gate", level, ending, strict=False)
        if header.stopped_by is Stop.LIMITS:
            yield self._step("kernel alone", level, self._probe(level), strict=False)
        elif header.goal is Goal.OUTSIDE:
            yield self._kernel_alone("kernel alone", level, Denied.KILL)
            yield self._kernel_alone("kernel alone, errno", level, Denied.ERRNO)

    def _kernel_alone(self, name: str, level: str, denied: Denied) -> Step:
        # The kernel layer must have been tried
        ending = self._probe(level, denied)
        step = self._step(name, level, ending, strict=False)
        tried = is_denied_by_kernel(ending)
        held = step.held and (
            tried or (denied is Denied.ERRNO and ending.status == "ok")
        )
        return dataclasses.replace(step, expected="denied by the kernel", held=held)

    def _benign_steps(self) -> Iterator[Step]:
        controls = self.runner.controls if self.case.header.run is Kind.TASK else None
        done: ControlRun | None = None
        if controls is not None:
            done = controls.run(self.case, self.ground, self._level())
        for level in self._levels():
            ending = self._layered(level, gate=True)
            step = self._step("every layer", level, ending, strict=True)
            yield dataclasses.replace(step, held=ending.status == "ok", reached=False)
            if done is not None:
                yield _compare(done, ending, level)


def _compare(plain: ControlRun, jailed: Ending, level: str) -> Step:
    same = (plain.value, plain.output) == (jailed.value, jailed.output)
    seen = "the same" if same else _first_difference(plain.value, jailed.value)
    return Step("plain CPython", level, "the same value and output", seen, held=same)


def _first_difference(plain: bytes, jailed: bytes) -> str:
    if plain == jailed:
        return "another output"
    if not plain:
        return "no value in plain CPython"
    shared = zip(plain, jailed, strict=False)
    place = next((n for n, (one, two) in enumerate(shared) if one != two), -1)
    return f"another value, from byte {place} of {len(plain)}"


def _read(read: Callable[[JailReport], RunOutcome], report: JailReport) -> Ending:
    # Read a report; what was nobody's fault inside is told as such
    try:
        return from_outcome(read(report), report)
    except InternalError as error:
        return Ending("fault", codes=(error.code,), error=error.message)


def _read_verdict(report: JailReport) -> Ending:
    if report.status is not JailStatus.FINISHED:
        return _read(read_outcome, report)
    output = report.output.decode("utf-8", "replace")
    try:
        fields = skeleton.decode(report.frame)
    except TrustError as error:
        return Ending("user_error", Stop.RESULT.value, (error.code,), output=output)
    fields = fields if isinstance(fields, dict) else {}
    verdict, text = str(fields.get("verdict")), str(fields.get("error_text"))
    layer = "" if verdict == "true" else Stop.VALIDATION.value
    return Ending(RunStatus.OK.value, layer, error=text, output=output, verdict=verdict)
