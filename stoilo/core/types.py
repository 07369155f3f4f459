"""Frozen records that travel between the parts. No dict does."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

import msgspec

from stoilo.core.errors import UsageError


class RunStatus(StrEnum):
    """How one run ended (design §7, outcomes of `sandbox`)."""

    OK = "ok"
    REFUSED = "refused"
    USER_ERROR = "user_error"
    KILLED = "killed"


class RunLayer(StrEnum):
    """Which layer decided the outcome."""

    GATE = "gate"
    LANGUAGE = "language"
    KERNEL = "kernel"
    LIMITS = "limits"
    RESULT = "result"


# Most characters of a finding's text, and most bytes of it in JSON
TEXT_CHARS, TEXT_BYTES = 400, 1000
_CODE_CHARS = 16


def bound_text(text: str) -> str:
    """Return `text` (it may quote hostile source) within both bounds, as valid Unicode."""
    if text.isascii() and len(text) <= TEXT_CHARS // 2:  # nothing takes six bytes here
        return text
    sound = text[: TEXT_CHARS + 1].encode("utf-8", "backslashreplace").decode()
    short = sound if len(sound) <= TEXT_CHARS else sound[: TEXT_CHARS - 1] + "…"
    while len(msgspec.json.encode(short)) > TEXT_BYTES:
        short = short[: len(short) * 3 // 4] + "…"
    return short


class Severity(StrEnum):
    """How bad a finding is; any error refuses."""

    ERROR = "error"
    WARNING = "warning"


class Finding(msgspec.Struct, frozen=True):
    """One thing the gate has to say about a place in the source.

    Lines and columns count from 1; the end is exclusive in columns. Texts are bounded here,
    whoever makes one, also where it is read from a process that saw hostile source.
    """

    code: str
    severity: Severity
    line: int
    column: int
    end_line: int
    end_column: int
    message: str
    hint: str

    def __post_init__(self) -> None:
        """Cut the texts to their bounds."""
        msgspec.structs.force_setattr(self, "code", self.code[:_CODE_CHARS])
        for name in ("message", "hint"):
            text = bound_text(getattr(self, name))
            msgspec.structs.force_setattr(self, name, text)


MAX_COPIES = 100


class Verdict(msgspec.Struct, frozen=True):
    """The gate's answer for one source under one policy."""

    admitted: bool
    level: str
    lowest_level: str  # empty when no level admits the source
    policy_digest: str
    source_digest: str
    findings: tuple[Finding, ...] = ()
    engine_digest: str = ""  # of gate, language layer, levels and Python minor


class JailUsage(msgspec.Struct, frozen=True):
    """What a run used: s, s, bytes."""

    cpu_s: float = 0.0
    wall_s: float = 0.0
    peak_memory_bytes: int = 0


class RunOutcome(msgspec.Struct, frozen=True):
    """The result of one run, as far as the parent believes it."""

    status: RunStatus  # how it ended
    # the encoded skeleton of the returned value, when status is ok
    value: bytes | None = None
    error: str = ""  # type and text of the task's exception or the reason of a refusal
    code: str = ""  # a stable code, empty when ok
    layer: RunLayer | None = None  # who decided, None when ok
    output: str = ""  # captured print output, bounded
    limit: str = ""  # the name of the `RunLimits` field that was hit, empty if none
    usage: JailUsage = JailUsage()  # measured by the parent
    layers: tuple[str, ...] = ()  # mechanisms that were active, for the result header


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
    """Raise ``STO-C042`` naming the violated relation (reference learn §1)."""
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
                "STO-C042",
                f"redundancy options are inconsistent: {relation} does not hold",
                hint="pass only min_quorum and let CreateOptions infer the rest",
            )
