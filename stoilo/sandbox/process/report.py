"""What the supervisor says about one run, and how it reads the signs."""

from __future__ import annotations

import os
import signal
from dataclasses import dataclass, field
from enum import StrEnum

from stoilo.core.limits import RunLimits
from stoilo.core.types import JailUsage, RunLayer
from stoilo.sandbox.kernel.building import name_syscall
from stoilo.sandbox.process.channel import FRAME_HEADER, OUT_OF_MEMORY, Ended

LIMIT_CODES = {
    "wall_s": "STO-S011",
    "cpu_s": "STO-S012",
    "memory_bytes": "STO-S013",
    "output_bytes": "STO-S014",
    "result_bytes": "STO-S015",
}
_HOST_FAULTS = frozenset({"STO-S005", "STO-S007", "STO-S008"})
_CPU_SEEN = (
    0.7  # of the limit: on a busy machine wait4 reports less than the kernel counts
)


class JailStatus(StrEnum):
    """How one child ended."""

    FINISHED = "finished"
    KILLED = "killed"
    REFUSED = "refused"
    CRASHED = "crashed"


@dataclass(frozen=True, slots=True)
class JailReport:
    """The result of one child.

    Attributes:
        status: how it ended.
        frame: what the job returned; untrusted, empty unless finished.
        output: what was printed; untrusted, bounded, also when killed.
        code: a stable code, empty when finished.
        layer: who ended it, None when finished.
        limit: the `RunLimits` field that was hit, empty if none.
        syscall: the denied call, empty if none.
        detail: one sentence for people, empty when finished.
        usage: measured by the zygote and the supervisor.
        layers: mechanisms that were active.
    """

    status: JailStatus
    frame: bytes = b""
    output: bytes = b""
    code: str = ""
    layer: RunLayer | None = None
    limit: str = ""
    syscall: str = ""
    detail: str = ""
    usage: JailUsage = field(default_factory=JailUsage)
    layers: tuple[str, ...] = ()

    @property
    def blames_host(self) -> bool:
        """Whether it says nothing about the program: this machine failed, or cancelled.

        Everything else is the program's own doing and must not make anybody repeat it.
        """
        refused = self.status is JailStatus.REFUSED
        return refused or self.code in _HOST_FAULTS


@dataclass(frozen=True, slots=True)
class Evidence:
    """What the supervisor saw of one run.

    Attributes:
        ended: the zygote's report, None when the zygote itself died.
        hit: the limit for which the supervisor asked for the kill, empty if none.
        result: bytes of the result pipe, with header (untrusted).
        output: bytes of the output pipe (untrusted), already bounded.
        limits: what was allowed.
        wall_s: elapsed time, s.
        layers: mechanisms that were active.
        cancelled: whether somebody who waits for it asked for the kill.
        short_of_memory: whether the kernel may have killed it for want of memory.
    """

    ended: Ended | None
    hit: str
    result: bytes
    output: bytes
    limits: RunLimits
    wall_s: float
    layers: tuple[str, ...]
    cancelled: bool = False
    short_of_memory: bool = True


@dataclass(frozen=True, slots=True)
class _Ending:
    status: JailStatus
    code: str = ""
    layer: RunLayer | None = None
    limit: str = ""
    syscall: str = ""
    detail: str = ""


def _limit_ending(limit: str) -> _Ending:
    return _Ending(
        JailStatus.KILLED,
        LIMIT_CODES[limit],
        RunLayer.LIMITS,
        limit=limit,
        detail=f"the limit {limit} was reached",
    )


def _kernel_ending(syscall: str) -> _Ending:
    return _Ending(
        JailStatus.KILLED,
        "STO-S010",
        RunLayer.KERNEL,
        syscall=syscall,
        detail=f"the kernel layer killed the run at the system call {syscall}",
    )


def _cancelled_ending() -> _Ending:
    return _Ending(
        JailStatus.CRASHED,
        "STO-S008",
        RunLayer.KERNEL,
        detail="the run was cancelled",
    )


def _may_be_over(evidence: Evidence) -> bool:
    """Whether only the limit on processor time can have killed the run.

    The kernel counts ticks for it, and a program that sleeps between them is charged for
    all of its elapsed time while `wait4` shows little. Such a program is not to look as if
    this machine had failed.
    """
    most = evidence.wall_s * evidence.limits.threads
    return most >= evidence.limits.cpu_s and not evidence.short_of_memory


def _name_signal(number: int) -> str:
    """Return a signal's name; those of real time have none."""
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"


def _ended_by_signal(number: int, evidence: Evidence, cpu_s: float) -> _Ending:
    if number == signal.SIGSYS:
        return _kernel_ending("of another architecture")
    over = cpu_s >= evidence.limits.cpu_s * _CPU_SEEN or _may_be_over(evidence)
    if number == signal.SIGXCPU or (number == signal.SIGKILL and over):
        return _limit_ending("cpu_s")
    if number == signal.SIGKILL:  # nobody inside can send it: kill(2) is denied
        return _Ending(
            JailStatus.CRASHED,
            "STO-S007",
            RunLayer.KERNEL,
            detail="something outside the jail killed the run",
        )
    return _Ending(
        JailStatus.CRASHED,
        "STO-S020",
        RunLayer.LANGUAGE,
        detail=f"the process died by {_name_signal(number)}",
    )


def _is_whole(result: bytes) -> bool:
    """Whether `result` is one frame and nothing more."""
    length = int.from_bytes(result[:FRAME_HEADER], "big")
    return len(result) >= FRAME_HEADER and len(result) == FRAME_HEADER + length


def _ended_by_exit(status: int, result: bytes) -> _Ending:
    if status == 0 and result == OUT_OF_MEMORY:
        return _limit_ending("memory_bytes")
    if status == 0 and _is_whole(result):
        return _Ending(JailStatus.FINISHED)
    if status == 0 and result:
        return _Ending(
            JailStatus.CRASHED,
            "STO-S021",
            RunLayer.RESULT,
            detail="what came out of the jail is not one whole result",
        )
    return _Ending(
        JailStatus.CRASHED,
        "STO-S022",
        RunLayer.LANGUAGE,
        detail=f"the process exited by itself with status {status}",
    )


def _judge_ending(evidence: Evidence, ended: Ended) -> _Ending:
    if ended.refused:
        return _Ending(
            JailStatus.REFUSED,
            "STO-S002",
            RunLayer.KERNEL,
            detail=f"a mandatory mechanism could not be applied: {ended.refused}",
        )
    if ended.denied:
        return _kernel_ending(name_syscall(ended.syscall))
    if evidence.hit:
        return _limit_ending(evidence.hit)
    if os.WIFSIGNALED(ended.wait_status):
        number = os.WTERMSIG(ended.wait_status)
        if evidence.cancelled and number == signal.SIGKILL:
            return _cancelled_ending()
        return _ended_by_signal(number, evidence, ended.cpu_s)
    return _ended_by_exit(os.WEXITSTATUS(ended.wait_status), evidence.result)


def judge(evidence: Evidence) -> JailReport:
    """Turn what was seen into the report; pure."""
    ended = evidence.ended
    if ended is None and evidence.cancelled:
        ending = _cancelled_ending()
    elif ended is None:
        ending = _Ending(
            JailStatus.CRASHED,
            "STO-S005",
            RunLayer.KERNEL,
            detail="the zygote died during the run",
        )
    else:
        ending = _judge_ending(evidence, ended)
    finished = ending.status is JailStatus.FINISHED
    return JailReport(
        status=ending.status,
        frame=evidence.result[FRAME_HEADER:] if finished else b"",
        output=evidence.output,
        code=ending.code,
        layer=ending.layer,
        limit=ending.limit,
        syscall=ending.syscall,
        detail=ending.detail,
        usage=JailUsage(
            cpu_s=ended.cpu_s if ended else 0.0,
            wall_s=evidence.wall_s,
            peak_memory_bytes=ended.peak_bytes if ended else 0,
        ),
        layers=evidence.layers,
    )
