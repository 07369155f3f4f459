"""What a submission says besides source and data, checked before anything is sent."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from stoilo.client.options import CLASSIC, TaskLimits
from stoilo.core.errors import UsageError
from stoilo.core.limits import BOUNDS
from stoilo.core.rpc import tasks_pb2 as pb
from stoilo.core.types import Redundancy, check_redundancy

if TYPE_CHECKING:
    from stoilo.client.capture import Captured


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
    """Return checked options or raise ``STO-C030``/``STO-C042``."""
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
    redundancy, limits = options.redundancy, options.limits
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
        redundancy=pb.RedundancyOptions(
            min_quorum=redundancy.min_quorum,
            target_results=redundancy.target_results,
            max_error=redundancy.max_error,
            max_total=redundancy.max_total,
            max_success=redundancy.max_success,
            delay_bound_s=redundancy.delay_bound_s,
        ),
        limits=pb.RunLimits(
            cpu_s=limits.cpu_s,
            wall_s=limits.wall_s,
            memory_bytes=limits.memory_bytes,
            result_bytes=limits.result_bytes,
            output_bytes=limits.output_bytes,
            threads=limits.threads,
        ),
        label=options.label,
        publish_source=options.publish_source,
        map_items=captured.map_items,
        topics=options.topics,
    )
