"""Frozen records that travel between the parts. No dict does."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum

from stoilo.core.errors import UsageError
from stoilo.core.finding import Finding, Severity
from stoilo.core.run_status import RunLayer, RunStatus

__all__ = [
    "Finding",
    "JailUsage",
    "Redundancy",
    "RunLayer",
    "RunOutcome",
    "RunStatus",
    "Severity",
    "TaskState",
    "Verdict",
    "check_redundancy",
]


MAX_COPIES = 100


@dataclass(frozen=True, slots=True)
class Verdict:
    """The gate's answer for one source under one policy."""

    admitted: bool
    level: str
    lowest_level: str  # empty when no level admits the source
    policy_digest: str
    source_digest: str
    findings: tuple[Finding, ...] = ()
    engine_digest: str = ""  # of gate, language layer, levels and Python minor


@dataclass(frozen=True, slots=True)
class JailUsage:
    """What a run used: s, s, bytes."""

    cpu_s: float = 0.0
    wall_s: float = 0.0
    peak_memory_bytes: int = 0


@dataclass(frozen=True, slots=True)
class RunOutcome:
    """The result of one run, as far as the parent believes it.

    Attributes:
        status: how it ended.
        value: the encoded skeleton of the returned value, when status is ok.
        error: type and text of the task's exception or the reason of a refusal.
        code: a stable code, empty when ok.
        layer: who decided, None when ok.
        output: captured print output, bounded.
        limit: the name of the `RunLimits` field that was hit, empty if none.
        usage: measured by the parent.
        layers: mechanisms that were active, for the result header.
    """

    status: RunStatus
    value: bytes | None = None
    error: str = ""
    code: str = ""
    layer: RunLayer | None = None
    output: str = ""
    limit: str = ""
    usage: JailUsage = field(default_factory=JailUsage)
    layers: tuple[str, ...] = ()


class TaskState(StrEnum):
    """Where a task is; the last five are final and exclusive (I6)."""

    ADMITTING = "admitting"
    WAITING_REVIEW = "waiting_review"
    RUNNING = "running"
    SUCCEEDED = "succeeded"
    USER_ERROR = "user_error"
    SYSTEM_ERROR = "system_error"
    EXPIRED = "expired"
    CANCELLED = "cancelled"

    @property
    def final(self) -> bool:
        """Whether nothing can change any more."""
        return self not in _OPEN_STATES


_OPEN_STATES = frozenset(
    {TaskState.ADMITTING, TaskState.WAITING_REVIEW, TaskState.RUNNING}
)


@dataclass(frozen=True, slots=True)
class Redundancy:
    """How many copies, and how many must agree (BOINC's names; delay in s)."""

    min_quorum: int = 2
    target_results: int = 2
    max_error: int = 2
    max_total: int = 3
    max_success: int = 3
    delay_bound_s: int = 300


def check_redundancy(options: Redundancy) -> None:
    """Raise ``STO-C030`` naming the violated relation (reference learn §1)."""
    quorum, target = options.min_quorum, options.target_results
    relations = (
        (quorum >= 1, "1 <= min_quorum"),
        (quorum <= target, "min_quorum <= target_results"),
        (target <= options.max_total, "target_results <= max_total"),
        (quorum <= options.max_success, "min_quorum <= max_success"),
        (options.max_success <= options.max_total, "max_success <= max_total"),
        (options.max_error >= 1, "1 <= max_error"),
        (options.max_error <= options.max_total, "max_error <= max_total"),
        (options.max_total <= MAX_COPIES, f"max_total <= {MAX_COPIES}"),
        (options.delay_bound_s > 0, "delay_bound > 0"),
    )
    for holds, relation in relations:
        if not holds:
            raise UsageError(
                "STO-C030",
                f"redundancy options are inconsistent: {relation} does not hold",
                hint="pass only min_quorum and let CreateOptions infer the rest",
            )
