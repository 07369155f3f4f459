"""What the supervisor says about one run, and the outcome that it makes of it.

The parent decodes what the jail answered with the strict codec and checks every field; it
calls nothing that the task wrote.
"""

from __future__ import annotations

import dataclasses
import math
import os
import re
import signal
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

import msgspec

from stoilo.core.codec import skeleton
from stoilo.core.codec.nodes import Node
from stoilo.core.codec.reader import DATA_BOUNDS
from stoilo.core.errors import InternalError, TrustError
from stoilo.core.levels import Level
from stoilo.core.types import JailUsage, RunLayer, RunLimits, RunOutcome, RunStatus
from stoilo.sandbox.kernel.calls import read_proc
from stoilo.sandbox.kernel.filters import name_syscall
from stoilo.sandbox.process.channel import FRAME_HEADER, OUT_OF_MEMORY, Ended

LIMIT_CODES = {
    "wall_s": "STO-S011",
    "cpu_s": "STO-S011",
    "memory_bytes": "STO-S013",
    "output_bytes": "STO-S014",
    "result_bytes": "STO-S014",
}
_HOST_FAULTS = frozenset({"STO-S005", "STO-S008"})
# Of the limit: on a busy machine wait4 reports less than the kernel counts.
_CPU_SEEN = 0.7


class JailStatus(StrEnum):
    """How one child ended."""

    FINISHED = "finished"
    KILLED = "killed"
    REFUSED = "refused"
    CRASHED = "crashed"


@dataclass(frozen=True, slots=True)
class JailReport:
    """The result of one child."""

    status: JailStatus  # how it ended
    code: str = ""  # a stable code, empty when finished
    layer: RunLayer | None = None  # who ended it, None when finished
    detail: str = ""  # one sentence for people, empty when finished
    limit: str = ""  # the `RunLimits` field that was hit, empty if none
    syscall: str = ""  # the denied call, empty if none
    frame: bytes = b""  # what the job returned; untrusted, empty unless finished
    output: bytes = b""  # what was printed; untrusted, bounded, also when killed
    # Measured by the zygote and the supervisor
    usage: JailUsage = field(default_factory=JailUsage)
    layers: tuple[str, ...] = ()  # mechanisms that were active

    @property
    def blames_host(self) -> bool:
        """Whether it says nothing about the program: this machine failed, or cancelled.

        Everything else is the program's own doing and must not make anybody repeat it.
        """
        refused = self.status is JailStatus.REFUSED
        return refused or self.code in _HOST_FAULTS


@dataclass(frozen=True, slots=True)
class Evidence:
    """What the supervisor saw of one run."""

    ended: Ended | None  # the zygote's report, None when the zygote itself died
    hit: str  # the limit for which the supervisor asked for the kill, empty if none
    result: bytes  # bytes of the result pipe, with header (untrusted)
    output: bytes  # bytes of the output pipe (untrusted), already bounded
    limits: RunLimits  # what was allowed
    wall_s: float  # elapsed time, s
    layers: tuple[str, ...]  # mechanisms that were active
    cancelled: bool = False  # whether somebody who waits for it asked for the kill
    # Whether the kernel may have killed it for want of memory
    short_of_memory: bool = True


def _count_memory_kills() -> int | None:
    """Return how many processes this kernel has killed for want of memory, None unknown.

    In control groups too (proc_vmstat(5), since Linux 4.13).
    """
    match = re.search(
        rb"^oom_kill ([0-9]{1,19})$", read_proc("/proc/vmstat"), re.MULTILINE
    )
    return int(match[1]) if match else None


class MemoryKills:
    """Whether the kernel killed for want of memory while something ran. Thread-safe.

    Args:
        count: how many it has killed since it started, None where it does not tell.
        clock: monotonic, s.
    """

    def __init__(
        self,
        count: Callable[[], int | None] = _count_memory_kills,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._count = count
        self._clock = clock
        self._lock = threading.Lock()
        self._known, self._seen = count(), clock()

    def since(self, begun: float) -> bool:
        """Say whether it may have, at `begun` or later; what is not told may have been."""
        with self._lock:
            now = self._count()
            if now is None or now != self._known:
                self._known, self._seen = now, self._clock()
            return self._seen >= begun


def judge(evidence: Evidence) -> JailReport:
    """Turn what was seen into the report; pure."""
    ended = evidence.ended
    report = _judge_ending(evidence, ended)
    finished = report.status is JailStatus.FINISHED
    return dataclasses.replace(
        report,
        frame=evidence.result[FRAME_HEADER:] if finished else b"",
        output=evidence.output,
        usage=JailUsage(
            cpu_s=ended.cpu_s if ended else 0.0,
            wall_s=evidence.wall_s,
            peak_memory_bytes=ended.peak_bytes if ended else 0,
        ),
        layers=evidence.layers,
    )


def _judge_ending(  # noqa: PLR0911 - one return for each way to end
    evidence: Evidence, ended: Ended | None
) -> JailReport:
    if ended is None:
        if evidence.cancelled:
            return _crashed("STO-S008", RunLayer.KERNEL, "the run was cancelled")
        detail = "the zygote died during the run"
        return _crashed("STO-S005", RunLayer.KERNEL, detail)
    if ended.refused:
        detail = f"a mandatory mechanism could not be applied: {ended.refused}"
        return JailReport(JailStatus.REFUSED, "STO-S002", RunLayer.KERNEL, detail)
    if ended.denied:
        return _stopped(name_syscall(ended.syscall))
    # Before the signal: the supervisor's kill for a limit looks like any other.
    if evidence.hit:
        return _over(evidence.hit)
    if os.WIFSIGNALED(ended.wait_status):
        number = os.WTERMSIG(ended.wait_status)
        if evidence.cancelled and number == signal.SIGKILL:
            return _crashed("STO-S008", RunLayer.KERNEL, "the run was cancelled")
        return _ended_by_signal(number, evidence, ended.cpu_s)
    return _ended_by_exit(os.WEXITSTATUS(ended.wait_status), evidence.result)


def _crashed(code: str, layer: RunLayer, detail: str) -> JailReport:
    return JailReport(JailStatus.CRASHED, code, layer, detail)


def _over(limit: str) -> JailReport:
    detail = f"the limit {limit} was reached"
    code = LIMIT_CODES[limit]
    return JailReport(JailStatus.KILLED, code, RunLayer.LIMITS, detail, limit=limit)


def _stopped(call: str) -> JailReport:
    detail = f"the kernel layer killed the run at the system call {call}"
    kernel = RunLayer.KERNEL
    return JailReport(JailStatus.KILLED, "STO-S010", kernel, detail, syscall=call)


def _ended_by_signal(number: int, evidence: Evidence, cpu_s: float) -> JailReport:
    if number == signal.SIGSYS:
        return _stopped("of another architecture")
    over = cpu_s >= evidence.limits.cpu_s * _CPU_SEEN or _may_be_over(evidence)
    if number == signal.SIGXCPU or (number == signal.SIGKILL and over):
        return _over("cpu_s")
    if number == signal.SIGKILL:  # nobody inside can send it: kill(2) is denied
        detail = "something outside the jail killed the run"
        return _crashed("STO-S005", RunLayer.KERNEL, detail)
    detail = f"the process died by {_name_signal(number)}"
    return _crashed("STO-S020", RunLayer.LANGUAGE, detail)


def _may_be_over(evidence: Evidence) -> bool:
    """Whether only the limit on processor time can have killed the run."""
    # The kernel counts ticks for it, and a program that sleeps between them is charged for
    # all of its elapsed time while `wait4` shows little. Such a program is not to look as
    # if this machine had failed.
    most = evidence.wall_s * evidence.limits.threads
    return most >= evidence.limits.cpu_s and not evidence.short_of_memory


def _name_signal(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:  # those of real time have no name
        return f"signal {number}"


def _ended_by_exit(status: int, result: bytes) -> JailReport:
    if status == 0 and result == OUT_OF_MEMORY:
        return _over("memory_bytes")
    if status == 0 and _is_whole(result):
        return JailReport(JailStatus.FINISHED)
    if status == 0 and result:
        detail = "what came out of the jail is not one whole result"
        return _crashed("STO-S021", RunLayer.RESULT, detail)
    detail = f"the process exited by itself with status {status}"
    return _crashed("STO-S021", RunLayer.LANGUAGE, detail)


def _is_whole(result: bytes) -> bool:
    """Whether `result` is one frame and nothing more."""
    length = int.from_bytes(result[:FRAME_HEADER], "big")
    return len(result) >= FRAME_HEADER and len(result) == FRAME_HEADER + length


# What a task's frame (hostile) says ---------------------------------------------------

_TEXT_CHARS = 4000
# Endings that a child may report of itself; limits and kills are the supervisor's to tell.
# But one: nobody outside sees an allocation fail. A lie about it gains nothing, because
# every program can use up its memory.
_TOLD_BY_CHILD = frozenset(
    {
        (RunStatus.USER_ERROR, RunLayer.LANGUAGE),
        (RunStatus.USER_ERROR, RunLayer.RESULT),
        (RunStatus.REFUSED, RunLayer.GATE),
        (RunStatus.REFUSED, RunLayer.LANGUAGE),
    }
)
_TOLD_MEMORY = (RunStatus.KILLED, RunLayer.LIMITS, LIMIT_CODES["memory_bytes"])
_CHILD_CODE = re.compile(r"(STO-[DGP][0-9]{3})?")


def choose_limits(level: Level, wall_s: float | None) -> RunLimits:
    """Return the level's defaults, with another wall time up to its maximum, s."""
    limits = level.default_limits()
    if wall_s is None:
        return limits
    most = level.max_limits().wall_s
    return dataclasses.replace(limits, wall_s=min(math.ceil(wall_s), most))


def read_outcome(report: JailReport) -> RunOutcome:
    """Return the outcome of a single call from what the jail reported.

    Raises:
        InternalError: ``STO-S005`` the zygote died or the child was killed
            from outside, ``STO-S008`` cancelled: nothing is known about the task.
    """
    if report.status is not JailStatus.FINISHED:
        return read_failure(report)
    return complete(_read_fields(decode_frame(report)), report)


def read_items(report: JailReport, items: int) -> tuple[RunOutcome, ...]:
    """Return one outcome for each of the `items` calls that shared the run.

    A run that ended as a whole (killed, refused) gives every item the same outcome.
    """
    if report.status is not JailStatus.FINISHED:
        return (read_failure(report),) * items
    frame = decode_frame(report)
    rows = frame.get("items") if isinstance(frame, dict) else None
    if isinstance(rows, list) and len(rows) == items:
        return tuple(complete(_read_fields(row), report) for row in rows)
    return (complete(_read_fields(frame), report),) * items


def read_refusal(report: JailReport) -> str:
    """Return the code with which a child (hostile) says that it ran nothing."""
    frame = decode_frame(report) if report.status is JailStatus.FINISHED else None
    fields = frame if isinstance(frame, dict) else {}
    refused = read_text(fields, "status") == RunStatus.REFUSED
    return read_text(fields, "code") if refused else ""


def read_failure(report: JailReport) -> RunOutcome:
    """Return the outcome of a run that did not finish; raises as `read_outcome`."""
    crashed = report.status is JailStatus.CRASHED
    if report.blames_host and crashed:
        raise InternalError(report.code, report.detail)
    outcome = RunOutcome(
        status=RunStatus.USER_ERROR if crashed else RunStatus(report.status.value),
        error=report.detail,
        code=report.code,
        layer=report.layer,
        limit=report.limit,
    )
    return complete(outcome, report)


def complete(outcome: RunOutcome, report: JailReport) -> RunOutcome:
    """Add what the parent itself knows."""
    return msgspec.structs.replace(
        outcome,
        output=report.output.decode("utf-8", "replace"),
        usage=report.usage,
        layers=report.layers,
    )


def decode_frame(report: JailReport) -> Node:
    """Return the frame (hostile) of a run that finished, or why it is none."""
    try:
        return skeleton.decode(report.frame)
    except TrustError as error:
        return str(error)


def _read_fields(fields: Node) -> RunOutcome:
    if not isinstance(fields, dict):
        return malformed("not a dict")
    try:
        status = RunStatus(read_text(fields, "status"))
        if status is RunStatus.OK:
            return RunOutcome(status=status, value=_read_value(fields))
        layer = RunLayer(read_text(fields, "layer") or RunLayer.LANGUAGE)
    except (ValueError, TrustError) as error:
        return malformed(str(error)[:_TEXT_CHARS])
    code = read_text(fields, "code")
    if (status, layer, code) == _TOLD_MEMORY:
        return out_of_memory()
    if (status, layer) not in _TOLD_BY_CHILD or not _CHILD_CODE.fullmatch(code):
        return malformed("it tells of an ending that only the supervisor sees")
    return RunOutcome(status=status, error=describe(fields), code=code, layer=layer)


def _read_value(fields: dict[Any, Any]) -> bytes:
    value = fields.get("value")
    if not isinstance(value, bytes | memoryview):
        raise TrustError("STO-D002", "a result without a value")
    # Nobody further on decodes what the strict codec has not accepted here.
    skeleton.decode(value, DATA_BOUNDS)
    return bytes(value)


def read_text(fields: dict[Any, Any], name: str) -> str:
    """Return a field (hostile) if it is text, bounded."""
    value = fields.get(name)
    return value[:_TEXT_CHARS] if isinstance(value, str) else ""


def describe(fields: dict[Any, Any]) -> str:
    """Return class and text of the error that a child tells of."""
    kind, text = read_text(fields, "error_type"), read_text(fields, "error_text")
    return f"{kind}: {text}" if kind and text else kind or text


def malformed(detail: str) -> RunOutcome:
    """Return the outcome of a run whose frame cannot be read."""
    error = f"what came out of the jail is not a result: {detail}"
    return RunOutcome(
        RunStatus.USER_ERROR, error=error, code="STO-S021", layer=RunLayer.RESULT
    )


def out_of_memory() -> RunOutcome:
    """Return the outcome of a run that says that it used up its memory."""
    return read_failure(_over("memory_bytes"))
