"""Answers for `FakeTaskService` that are computed: the task's source in the real jail."""

from __future__ import annotations

from typing import TYPE_CHECKING, Self

from stoilo.core.rpc import tasks_pb2 as pb
from stoilo.core.types import RunOutcome, RunStatus, TaskState
from stoilo.policies.levels import load_level
from stoilo.sandbox.process.channel import TASK_JOB, TaskRequest
from stoilo.sandbox.process.report import read_items, read_outcome
from stoilo.sandbox.process.supervisor import Jail
from stoilo.testing.service import FakeTaskService, Outcome

if TYPE_CHECKING:
    from stoilo.core.levels import Level

__all__ = ["JailAnswerer"]


class JailAnswerer:
    """Runs one copy of every task; validators and quorum are not played.

    Use it as a context manager: it holds a zygote.
    """

    def __init__(self, level: str = "numeric") -> None:
        self._level: Level = load_level(level)
        self._jail = Jail(self._level, TASK_JOB)

    def __enter__(self) -> Self:
        """Return the answerer."""
        return self

    def __exit__(self, *exc_info: object) -> None:
        """End the zygote."""
        self._jail.close()

    def __call__(
        self, request: pb.CreateTaskRequest, service: FakeTaskService
    ) -> Outcome:
        """Run the task and return its outcome."""
        task = TaskRequest(
            source=request.task_module.decode(),
            entry=request.entry,
            arguments=request.arguments,
            blobs=tuple(service.blobs[name] for name in request.blobs),
            items=request.map_items,
        )
        report = self._jail.run(task.encode(), self._level.default_limits())
        if request.map_items:
            items = read_items(report, request.map_items)
            return Outcome(items=tuple(map(_outcome, items)))
        return _outcome(read_outcome(report))


def _outcome(run: RunOutcome) -> Outcome:
    if run.status is RunStatus.OK:
        return Outcome(value=run.value or b"")
    kind, _, text = run.error.partition(": ")
    return Outcome(TaskState.USER_ERROR, b"", kind, text or run.error, run.code)
