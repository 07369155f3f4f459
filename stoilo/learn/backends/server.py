"""A stoilo server: gate, log, signatures, jails and volunteers are the real ones."""

from __future__ import annotations

import asyncio
import logging
import math
import time
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from stoilo.client.capture.arguments import StoredValue
from stoilo.client.options import CreateOptions, TaskLimits
from stoilo.client.results import SystemError as TaskSystemError
from stoilo.client.results import TimedOut, UserError
from stoilo.core.errors import StoiloError, UnreachableError
from stoilo.core.rpc.progress_pb2 import ReportProgressRequest
from stoilo.core.types import TaskState
from stoilo.learn.backends import Backend, Handle, Job, JobEnd

if TYPE_CHECKING:
    from collections.abc import Sequence

    from stoilo.client.connection import Connection
    from stoilo.client.options import TaskLimits
    from stoilo.client.task import SubmittedTask
    from stoilo.core.types import Redundancy


_SUCCEEDED = TaskState.SUCCEEDED.value
LOGGER = logging.getLogger(__name__)
MOST_WRONG = 8
LEAST_S = 60  # of a deadline: a volunteer asks, fetches and starts first
REPORT_S = 5.0  # so long a training waits, s, until the server knows of a wrong answer


class ServerBackend(Backend):
    """Runs jobs as tasks of a connection, one task a job.

    Args:
        connection: of `stoilo.connect`; it stays the caller's to close.
        redundancy: how many copies, how many must agree; one that is believed when missing,
            because its form is checked and its influence bounded, and further ones, each of
            another volunteer, only where forms are wrong or hosts fail.
        limits: what one run may use.
        flavor: dependency set; the smallest that holds the imports when missing.
        publish_source: let anybody read the source in the public log.
    """

    def __init__(
        self,
        connection: Connection,
        redundancy: Redundancy | None = None,
        limits: TaskLimits | None = None,
        *,
        flavor: str | None = None,
        publish_source: bool = False,
    ) -> None:
        self._connection = connection
        self._redundancy = make_redundancy() if redundancy is None else redundancy
        self._limits, self._publish = limits, publish_source
        self._flavor = flavor
        self._watched: dict[str, asyncio.Task[JobEnd]] = {}
        self._reads = True

    async def put(self, value: object) -> Handle:
        """Upload a value; volunteers keep it between tasks."""
        stored = await self._connection.put(value)
        return Handle(stored.digest, stored.size, stored)

    async def submit(self, job: Job) -> str:
        """Create the task; the same key, also from another process, gives the same one."""
        staged = self._connection.create_task(
            job.function,
            {
                name: value.stored if isinstance(value, Handle) else value
                for name, value in job.arguments.items()
            },
            job.check,
            job.alike if self._redundancy.min_quorum > 1 else None,
            redundancy_options=self._hurry(job),
            flavor=self._flavor,
            level=job.level,
            limits=self._limits,
            label=job.label,
            publish_source=self._publish,
            key=job.key,
        )
        submitted = await staged.submit()
        self._watch(submitted, stays=job.stays)
        return submitted.task_id

    def _hurry(self, job: Job) -> Redundancy:
        """Return the redundancy with the job's own deadline, if it is an earlier one."""
        asked, usual = job.deadline_s, self._redundancy.delay_bound_s
        wanted = usual if asked is None else min(usual, max(LEAST_S, math.ceil(asked)))
        return replace(self._redundancy, delay_bound_s=wanted)

    async def submit_many(self, jobs: Sequence[Job]) -> list[str | StoiloError]:
        """Create the tasks by one call of the server, as far as they share a source."""
        works = [asyncio.ensure_future(self.submit(job)) for job in jobs]
        await asyncio.wait(works)
        errors = [work.exception() for work in works]
        for error in errors:
            if isinstance(error, UnreachableError) or (
                error is not None and not isinstance(error, StoiloError)
            ):
                raise error
        return [
            error if isinstance(error, StoiloError) else work.result()
            for work, error in zip(works, errors, strict=True)
        ]

    def _watch(self, submitted: SubmittedTask[Any], *, stays: bool) -> None:
        if submitted.task_id not in self._watched:
            work = asyncio.create_task(
                await_ending(submitted, reads=self._reads, stays=stays)
            )
            self._watched[submitted.task_id] = work

    async def next(self, wait_s: float | None = None) -> JobEnd | None:
        """Return the next ending; server restarts are waited out."""
        if not self._watched:
            return None
        done, _ = await asyncio.wait(
            self._watched.values(),
            timeout=wait_s,
            return_when=asyncio.FIRST_COMPLETED,
        )
        if not done:
            return None
        work = next(iter(done))
        for job_id in [j for j, watched in self._watched.items() if watched is work]:
            del self._watched[job_id]
        return work.result()

    def leave_values(self) -> None:
        """Give no values with endings; see `Backend.leave_values`."""
        self._reads = False

    async def cancel(self, job_id: str) -> None:
        """Cancel the task at the server."""
        work = self._watched.pop(job_id, None)
        if work is not None:
            work.cancel()
            # Until it has let go: its call may still be on the connection.
            await asyncio.wait([work])
        await self._connection.restore_task(job_id).cancel()

    async def refuse(self, job_id: str, reason: str) -> None:
        """Tell the server that an answer cannot be used: it ends its host's record."""
        try:
            async with asyncio.timeout(REPORT_S):
                await self._connection.restore_task(job_id).reject(reason)
        except (
            StoiloError,
            TimeoutError,
        ) as error:  # the training does not depend on it
            LOGGER.warning("a wrong answer could not be reported: %s", error)

    async def report(self, request: ReportProgressRequest) -> None:
        """Tell the server's console how a training goes."""
        wire = self._connection.session.wire
        await wire.call("ReportProgress", request, timeout_s=REPORT_S)

    async def close(self) -> None:
        """Stop waiting; tasks at the server go on and can be restored."""
        for work in self._watched.values():
            work.cancel()
        if self._watched:
            await asyncio.wait(self._watched.values())
        self._watched.clear()


def make_redundancy() -> Redundancy:
    """Return one copy, and room for `MOST_WRONG` hosts that fail or send nonsense."""
    return CreateOptions(
        min_quorum=1,
        target_nresults=1,
        max_error_results=MOST_WRONG,
        max_total_results=MOST_WRONG,
        max_success_results=1,
    )


async def await_ending(
    submitted: SubmittedTask[Any], *, reads: bool = True, stays: bool = False
) -> JobEnd:
    """Wait for a task's outcome; an error of ours becomes the ending's error.

    `reads`: whether a value is decoded, and a large one downloaded; None comes otherwise.
    With `stays` a handle of it comes, from wherever it lies.
    """
    outcome: object
    try:
        final = await submitted.wait()
        if stays:
            outcome = await submitted.stored()
        elif not reads and final is not None and final.state == _SUCCEEDED:
            outcome = None
        else:
            outcome = await submitted.result()
    except StoiloError as failure:  # an answer that does not decode, for example
        outcome = failure
    is_error = isinstance(outcome, (UserError, TaskSystemError, TimedOut, StoiloError))
    error = outcome if is_error and isinstance(outcome, Exception) else None
    value = None if error is not None else outcome
    if isinstance(value, StoredValue):
        value = Handle(value.digest, value.size, value)
    now = time.monotonic()
    return JobEnd(submitted.task_id, value, error, now, count_claimed_s(submitted))


def count_claimed_s(submitted: SubmittedTask[Any]) -> float:
    """Return the longest time that a copy's host claims it computed, s; 0: none does."""
    copies = submitted.known.copies if submitted.known else ()
    claims = [copy.cpu_s for copy in copies if math.isfinite(copy.cpu_s)]
    return max(0.0, *claims, 0.0)
