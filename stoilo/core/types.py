"""Frozen records that travel between the parts, no dict does; and every bound, with units.

Nothing from outside is read past `BOUNDS`.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from enum import StrEnum

import msgspec

from stoilo.core.errors import UsageError

KIB = 1024
MIB = 1024 * KIB


class Bounds(msgspec.Struct, frozen=True):
    """Sizes and counts accepted from another party (bytes unless said otherwise)."""

    source_bytes: int = 256 * KIB  # one module's text
    source_line_chars: int = 10_000
    ast_nodes: int = 50_000
    ast_depth: int = 50
    value_depth: int = 64  # nesting of one encoded value
    value_nodes: int = 1_000_000  # elements in one encoded value
    value_bytes: int = 256 * MIB  # one encoded value
    name_chars: int = 128  # identifiers, entries, labels
    calls: int = 12  # told of where an error passed, the innermost ones
    inline_arguments_bytes: int = 1 * MIB  # larger values travel as blobs
    blob_bytes: int = 256 * MIB
    blobs_per_task: int = 64
    statement_bytes: int = 64 * KIB
    envelope_bytes: int = 128 * KIB
    proof_bytes: int = 144 * KIB
    metadata_bytes: int = 512 * KIB  # one TUF file
    scheduler_request_bytes: int = 4 * MIB
    result_header_bytes: int = 12 * KIB  # with the checkpoint in it
    seen_checkpoint_bytes: int = 4 * KIB  # the note that an executor sends back
    review_bytes: int = 4 * KIB
    rpc_message_bytes: int = 2 * MIB  # to the server
    rpc_answer_bytes: int = 32 * MIB  # from it
    token_chars: int = 256
    map_items: int = 10_000  # items in one chunked workunit


BOUNDS = Bounds()
_OF_MANY = re.compile(r" \S*[0-9]\S*$")


def name_of_label(label: str) -> str:
    """Return what the labels of one map or training share: all but a number at the end."""
    return _OF_MANY.sub("", label)


@dataclass(frozen=True, slots=True)
class RunLimits:
    """What one run in the jail may use.

    Attributes:
        cpu_s: processor time, s.
        wall_s: elapsed time, s.
        memory_bytes: address space above what the warm zygote already holds.
        result_bytes: encoded result.
        output_bytes: captured print output.
        threads: 1 means no thread can be started.
    """

    cpu_s: int = 60
    wall_s: int = 120
    memory_bytes: int = 512 * MIB
    result_bytes: int = 16 * MIB
    output_bytes: int = 64 * KIB
    threads: int = 1


def lowest_limits(*all_limits: RunLimits) -> RunLimits:
    """Return the smallest of each limit (design §4: admission, level, opt-in)."""
    return RunLimits(
        cpu_s=min(limit.cpu_s for limit in all_limits),
        wall_s=min(limit.wall_s for limit in all_limits),
        memory_bytes=min(limit.memory_bytes for limit in all_limits),
        result_bytes=min(limit.result_bytes for limit in all_limits),
        output_bytes=min(limit.output_bytes for limit in all_limits),
        threads=min(limit.threads for limit in all_limits),
    )


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
    # of gate, language layer, levels, libraries and Python minor
    engine_digest: str = ""
    # import names of the described libraries that source and arguments need
    libraries: tuple[str, ...] = ()


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
