"""A task before and after it is submitted (thesis §7.1.2), asynchronous face."""

from __future__ import annotations

import asyncio
import functools
import time
import uuid
from typing import TYPE_CHECKING, Any, Generic

from stoilo.client.capture import Captured
from stoilo.client.capture.arguments import StoredValue
from stoilo.client.options import TaskOptions
from stoilo.client.results import (
    UNKNOWN,
    KnownSource,
    ResultT,
    TaskOutcome,
    TimedOut,
    read_items,
    read_outcome,
)
from stoilo.client.session import Session, at_the_caller, source_digest
from stoilo.client.status import (
    TaskStatus,
    explain,
    read_status,
    task_html,
)
from stoilo.client.wire import SourceRefused
from stoilo.core import tracing
from stoilo.core.rate_limit import Backoff
from stoilo.core.rpc import tasks_pb2 as pb
from stoilo.core.types import TaskState

if TYPE_CHECKING:
    from stoilo.client.checking import CheckedTask


# Between polls of a task that is not finished (thesis: 15 to 60 s)
POLLING = functools.partial(Backoff, 0.1, 30.0, factor=1.4, jitter=0.2)


class SubmittedTask(Generic[ResultT]):
    """A task that the server has acknowledged: it survives anything that happens here."""

    def __init__(
        self,
        session: Session,
        task_id: str,
        source: KnownSource = UNKNOWN,
        trace: str = "",  # the span that submitted it
    ) -> None:
        self._session = session
        self._task_id = task_id
        self._known = source
        self._trace = trace
        self._final: pb.PollTaskResponse | None = None
        self._last: pb.PollTaskResponse | None = None

    @property
    def task_id(self) -> str:
        """The id to save and to pass to ``restore_task``."""
        return self._task_id

    @property
    def source(self) -> str:
        """The task module's exact text; empty for a restored task."""
        return self._known.text

    @property
    def page(self) -> str:
        """Address of its page in the server's console; empty where it is not known."""
        return self._session.wire.address.page_of("task", self._task_id)

    @property
    def known(self) -> TaskStatus | None:
        """What the server said last, without asking again; None before it did."""
        return None if self._last is None else read_status(self._last, self.page)

    @at_the_caller
    async def result(self, timeout: float | None = None) -> TaskOutcome[ResultT]:  # noqa: ASYNC109 - the futures' word
        """Wait for the outcome and return it.

        Lost connections and server restarts are waited out.

        Args:
            timeout: s; None waits as long as it takes.

        Returns:
            The value, a `UserError`, a `SystemError`, or `TimedOut` with the task id.

        Raises:
            DeniedError: the task is not ours or the token is not valid any more.
            TrustError: the server's answer does not hold together.
        """
        answer = await self.wait(timeout)
        if answer is None:
            state = self._last.state if self._last else ""
            return TimedOut(self._task_id, timeout or 0.0, state)
        return await read_outcome(self._session.wire, answer, self._known)

    @at_the_caller
    async def stored(self) -> StoredValue | TaskOutcome[ResultT]:
        """Wait as `result` does; return a handle of the value instead of the value.

        A large value then stays at the server, and another task's ``kwargs`` name it as what
        `Connection.put` returns, unread here: what volunteers agreed on goes to volunteers.
        A small one, which the server's answer brings along, is put there. Not for maps.
        """
        answer = await self.wait()
        if answer is None or answer.state != TaskState.SUCCEEDED.value or answer.items:
            return await self.result()
        if answer.value_blob:
            return StoredValue(answer.value_blob, 0)  # its size the server does not say
        return StoredValue(await self._session.store(answer.value), len(answer.value))

    async def item_results(self, count: int) -> list[TaskOutcome[ResultT]]:
        """Return the outcome of each item of a map task, in order."""
        answer = await self.wait(None)
        assert answer is not None  # noqa: S101 - no timeout was given
        return await read_items(self._session.wire, answer, count, self._known)

    async def wait(self, timeout: float | None = None) -> pb.PollTaskResponse | None:  # noqa: ASYNC109 - same
        """Wait until the task is final; None when `timeout` s passed before."""
        if self._final is not None:
            return self._final
        with tracing.span("stoilo.wait", self._trace, task_id=self._task_id):
            answer = await self._wait(timeout)
            tracing.note(state=answer.state if answer else "unfinished")
        return answer

    async def _wait(self, timeout: float | None) -> pb.PollTaskResponse | None:  # noqa: ASYNC109 - same
        deadline = None if timeout is None else time.monotonic() + timeout
        if deadline is not None:  # so that something is known when it has passed
            await self._poll_until(deadline)
        await self._follow(deadline)
        backoff = POLLING()
        while self._final is None:
            answer = await self._poll_until(deadline)
            if answer is None:
                return None
            if self._final is None:
                pause = backoff.next_pause()
                if answer.retry_after_ms > 0:  # the server knows better, within reason
                    pause = min(max(answer.retry_after_ms / 1000, 0.02), 120.0)
                if deadline is not None:
                    pause = min(pause, max(0.0, deadline - time.monotonic()))
                await asyncio.sleep(pause)
        return self._final

    async def _follow(self, deadline: float | None) -> None:
        """Wait to be told of the end; what is left then has to be polled for."""
        left = None if deadline is None else deadline - time.monotonic()
        if self._final is not None or (left is not None and left <= 0):
            return
        try:
            async with asyncio.timeout(left):
                answer = await self._session.waiting.end_of(self._task_id)
        except TimeoutError:
            return
        if answer is not None:
            self._last = self._final = answer

    async def _poll_until(self, deadline: float | None) -> pb.PollTaskResponse | None:
        left = None if deadline is None else deadline - time.monotonic()
        if left is not None and left <= 0:
            return None
        try:
            async with asyncio.timeout(left):
                return await self._poll(patience_s=None)
        except TimeoutError:
            return None

    async def _poll(self, patience_s: float | None) -> pb.PollTaskResponse:
        request = pb.PollTaskRequest(task_id=self._task_id)
        answer: pb.PollTaskResponse = await self._session.wire.call_patiently(
            "PollTask", request, patience_s=patience_s
        )
        self._last = answer
        if answer.state in set(TaskState) and TaskState(answer.state).final:
            self._final = answer
        return answer

    @at_the_caller
    async def status(self) -> TaskStatus:
        """Ask the server where the task is.

        Raises:
            UnreachableError: ``STO-C050`` when it does not answer for a while.
        """
        if self._final is None:
            await self._poll(self._session.patience_s)
        assert self._last is not None  # noqa: S101 - it was just asked for, or is final
        return read_status(self._last, self.page)

    async def done(self) -> bool:
        """Whether the task is final."""
        return (await self.status()).state.final

    async def explain(self) -> str:
        """Return one sentence: why the task waits, or how it ended."""
        return explain(await self.status())

    @at_the_caller
    async def cancel(self) -> bool:
        """Ask for cancellation; True when the task ended as cancelled.

        Copies that run already are told to stop; a task that was final stays as it is.
        """
        request = pb.CancelTaskRequest(task_id=self._task_id)
        answer = await self._session.wire.call_patiently(
            "CancelTask", request, patience_s=self._session.patience_s
        )
        return bool(answer.state == TaskState.CANCELLED.value)

    @at_the_caller
    async def reject(self, reason: str) -> bool:
        """Say that the task's value cannot be used, though volunteers agreed on it.

        The outcome stays as it is. The hosts that gave the value lose their record, and
        get less work when that is said of them often; so do not say it of what may be
        honest. False where it was said before, the task has no value, or the server runs
        on an engine that keeps no such records.
        """
        request = pb.RejectResultRequest(task_id=self._task_id, reason=reason[:200])
        answer = await self._session.wire.call_patiently(
            "RejectResult", request, patience_s=self._session.patience_s
        )
        return bool(answer.copies)

    def __repr__(self) -> str:
        """Return the id and the last known state."""
        state = self._last.state if self._last else "submitted"
        return f"<SubmittedTask {self._task_id} {state}>"

    def _repr_html_(self) -> str:
        """Return a small static table, with a link to the console's page."""
        return task_html(self._task_id, self.known, self.source, self.page)


async def submit(
    session: Session, captured: Captured, options: TaskOptions, key: str
) -> SubmittedTask[Any]:
    """Send a task; see `Session.submit`."""
    with tracing.span("stoilo.submit", source=source_digest(captured)):
        try:
            task_id = await session.submit(captured, options, key)
        except SourceRefused as error:
            error.origins = captured.origins
            raise
        tracing.note(task_id=task_id)
        trace = tracing.present()
    source = KnownSource(captured.task_module, captured.origins)
    return SubmittedTask(session, task_id, source, trace)


class StagedTask(Generic[ResultT]):
    """A captured task that the server does not know yet. Making one sends nothing."""

    def __init__(
        self,
        session: Session,
        captured: Captured,
        options: TaskOptions,
        key: str | None = None,
    ) -> None:
        self._session = session
        self._captured = captured
        self._options = options
        self._key = uuid.uuid4().hex if key is None else key
        self._submitting: asyncio.Task[SubmittedTask[ResultT]] | None = None

    @property
    def task_id(self) -> None:
        """None: the server assigns an id at submission."""
        return

    @property
    def source(self) -> str:
        """The task module's exact text, as it will be logged and run."""
        return self._captured.task_module

    @property
    def validator_source(self) -> str:
        """The validator module's exact text; empty with the default validators."""
        return self._captured.validator_module

    def check(self) -> CheckedTask:
        """Return what the gate says of the task at home; sends nothing."""
        from stoilo.client.checking import check_captured  # noqa: PLC0415 - slow

        return check_captured(self._captured, self._options.level)

    @at_the_caller
    async def submit(self) -> SubmittedTask[ResultT]:
        """Send the task to the server and return it with its id.

        Submitting twice, or again after a lost answer, gives the same task.

        Raises:
            SourceRefused: the gate refused it; findings say where and why.
            UnreachableError: ``STO-C050``; call `submit` again later.
        """
        if self._submitting is None or _has_failed(self._submitting):
            work = submit(self._session, self._captured, self._options, self._key)
            self._submitting = asyncio.ensure_future(work)
        return await asyncio.shield(self._submitting)

    @at_the_caller
    async def result(self, timeout: float | None = None) -> TaskOutcome[ResultT]:  # noqa: ASYNC109 - same
        """Submit, then wait as `SubmittedTask.result` does."""
        return await (await self.submit()).result(timeout)

    def __repr__(self) -> str:
        """Return the entry's name and sizes."""
        size = len(self._captured.task_module)
        return f"<StagedTask {self._captured.entry} ({size} characters of source)>"

    def _repr_html_(self) -> str:
        """Return the exact source, escaped."""
        return task_html("not submitted yet", None, self.source)


def _has_failed(work: asyncio.Task[SubmittedTask[ResultT]]) -> bool:
    return work.done() and (work.cancelled() or work.exception() is not None)
