"""Settings of one task, checked before anything is sent, and the message that submits it.

BOINC's words: *min_quorum* results must agree, *target* copies go out at first, at most
*max_total* are ever made, *max_error* may fail, *max_success* may succeed without
agreement. Every set that could never end well is refused by name (``STO-C042``).
"""

from __future__ import annotations

from dataclasses import asdict, dataclass, field, replace
from typing import TYPE_CHECKING

from stoilo.core.errors import UsageError
from stoilo.core.limits import BOUNDS
from stoilo.core.rpc import tasks_pb2 as pb
from stoilo.core.types import Redundancy, check_redundancy

if TYPE_CHECKING:
    from stoilo.client.capture import Captured


DEFAULT_QUORUM = 2
DEFAULT_DELAY_S = 300
LEAST_TOTAL = 3


@dataclass(frozen=True, slots=True)
class TaskLimits:
    """What one run may use; 0 leaves the level's default.

    Attributes:
        cpu_s: processor time, s.
        wall_s: elapsed time, s.
        memory_bytes: memory, bytes.
        result_bytes: encoded result, bytes.
        output_bytes: captured print output, bytes.
        threads: threads.
    """

    cpu_s: int = 0
    wall_s: int = 0
    memory_bytes: int = 0
    result_bytes: int = 0
    output_bytes: int = 0
    threads: int = 0


def CreateOptions(  # noqa: N802 - the thesis's name
    min_quorum: int | None = None,
    target_nresults: int | None = None,
    max_error_results: int | None = None,
    max_total_results: int | None = None,
    max_success_results: int | None = None,
    delay_bound: int | None = None,
) -> Redundancy:
    """Return redundancy options, inferring what is missing.

    Args:
        min_quorum: results that must agree; 2 when missing.
        target_nresults: copies made at first; the quorum when missing.
        max_error_results: failed copies before giving up; what a majority of the quorum
            leaves of the total when missing, at least 1.
        max_total_results: copies ever made; ``max(3, quorum + 1, target)`` when missing.
        max_success_results: successful copies before giving up; the total when missing.
        delay_bound: time a volunteer has for one copy, s; 300 when missing.

    Raises:
        UsageError: ``STO-C042`` naming the relation that does not hold.
    """
    quorum = DEFAULT_QUORUM if min_quorum is None else min_quorum
    target = quorum if target_nresults is None else target_nresults
    total = max_total_results
    if total is None:
        total = max(LEAST_TOTAL, quorum + 1, target)
    errors = max_error_results
    if errors is None:
        errors = max(1, total - (quorum // 2 + 1))
    options = Redundancy(
        min_quorum=quorum,
        target_results=target,
        max_error=errors,
        max_total=total,
        max_success=total if max_success_results is None else max_success_results,
        delay_bound_s=DEFAULT_DELAY_S if delay_bound is None else delay_bound,
    )
    check_redundancy(options)
    return options


# One copy, believed. For trying things out and for work that is checked otherwise.
TRIVIAL = CreateOptions(
    min_quorum=1, target_nresults=1, max_total_results=1, max_success_results=1
)

CLASSIC = CreateOptions()  # Two copies that agree, a third when they do not


@dataclass(frozen=True, slots=True)
class TaskOptions:
    """Everything about a task that is not its source or data."""

    redundancy: Redundancy = CLASSIC  # how many copies, how many must agree
    # dependency set by id or name; empty = smallest that holds the imports
    flavor: str = ""
    level: str = ""  # lowest level wanted; empty = lowest that admits
    limits: TaskLimits = field(default_factory=TaskLimits)  # what one run may use
    label: str = ""  # shown in lists
    publish_source: bool = False  # the submitter's recorded choice
    topics: tuple[str, ...] = ()  # what the task is about, for volunteers who choose


def make_options(
    redundancy: Redundancy | None,
    flavor: str | None,
    level: str | None,
    limits: TaskLimits | None,
    label: str,
    publish_source: bool,
) -> TaskOptions:
    """Return checked options or raise ``STO-C042``."""
    options = TaskOptions(publish_source=publish_source, label=label)
    if redundancy is not None:
        if not isinstance(redundancy, Redundancy):
            raise UsageError(
                "STO-C042",
                "redundancy_options must come from redundancy.CreateOptions",
                hint="for example redundancy.CreateOptions(min_quorum=3)",
            )
        check_redundancy(redundancy)
        options = replace(options, redundancy=redundancy)
    if len(label) > BOUNDS.name_chars:
        raise UsageError(
            "STO-C042", f"a label has at most {BOUNDS.name_chars} characters"
        )
    return replace(
        options,
        flavor=flavor or "",
        level=level or "",
        limits=limits or TaskLimits(),
    )


def create_request(
    captured: Captured, options: TaskOptions, key: str, blobs: list[str]
) -> pb.CreateTaskRequest:
    """Return the message that submits `captured`; `blobs` are digests in order."""
    return pb.CreateTaskRequest(
        idempotency_key=key,
        task_module=captured.task_module.encode(),
        entry=captured.entry,
        validator_module=captured.validator_module.encode(),
        init_entry=captured.init_entry,
        compare_entry=captured.compare_entry,
        arguments=captured.arguments,
        blobs=blobs,
        level=options.level,
        flavor=options.flavor,
        redundancy=pb.RedundancyOptions(**asdict(options.redundancy)),
        limits=pb.RunLimits(**asdict(options.limits)),
        label=options.label,
        publish_source=options.publish_source,
        map_items=captured.map_items,
        topics=options.topics,
    )
