"""An in-memory TaskService on a real loopback port.

`FakeTaskService` keeps tasks in a dict and answers them by a function of yours (an
`Answerer`): by scripted values, or by `tests.support.jailed.JailAnswerer`, which runs the
task's source in the real sandbox. It can lose answers, and counts calls.
"""

from __future__ import annotations

import asyncio
import time
import uuid
from collections import Counter
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

import grpc

from stoilo.client.address import Address
from stoilo.core.codec.skeleton import encode
from stoilo.core.digests import content_digest
from stoilo.core.errors import DeniedError, StoiloError, UsageError
from stoilo.core.rpc import tasks_pb2 as pb
from stoilo.core.rpc import tasks_pb2_grpc
from stoilo.core.types import BOUNDS, TaskState

ERROR_KEY = "stoilo-error-bin"
CHUNK = 1024 * 1024
ROUND_S = 0.02


@dataclass(frozen=True, slots=True)
class Outcome:
    """How a fake task ends."""

    state: TaskState = TaskState.SUCCEEDED  # a final state
    value: bytes = b""  # encoded skeleton when it succeeded
    error_type: str = ""  # class name of the exception, for user errors
    error_text: str = ""  # its text
    code: str = ""  # stable code
    items: tuple[Outcome, ...] = ()  # outcomes of a map's items
    # what the host of its only copy claims to have computed, s; 0: nothing
    cpu_s: float = 0.0

    @classmethod
    def of(cls, node: object) -> Outcome:
        """Return the success that carries `node`."""
        return cls(value=encode(node))


Answerer = Callable[[pb.CreateTaskRequest, "FakeTaskService"], Outcome]


@dataclass(eq=False)
class _FakeTask:
    request: pb.CreateTaskRequest
    polls_left: int
    state: TaskState = TaskState.RUNNING
    outcome: Outcome | None = None
    answering: asyncio.Future[None] | None = None
    created_at: int = field(default_factory=lambda: int(time.time()))


class FakeTaskService(tasks_pb2_grpc.TaskServiceServicer):
    """The researcher's contract in memory.

    Args:
        token: what callers must show; empty asks for none.
    """

    def __init__(
        self,
        answer: Answerer,  # gives a task's outcome when its last poll comes
        *,
        polls: int = 1,  # how many polls answer "running" before
        token: str = "fake-token",  # noqa: S107 - opens nothing
        # larger values come as blobs
        inline_bytes: int = BOUNDS.inline_arguments_bytes,
        # as a server of before that has no CreateTasks and no WaitTasks
        is_old: bool = False,
    ) -> None:
        self.answer = answer
        self.polls = polls
        self.token = token
        self.inline_bytes = inline_bytes
        self.is_old = is_old
        self.tasks: dict[str, _FakeTask] = {}
        self.keys: dict[str, str] = {}
        self.blobs: dict[str, bytes] = {}
        self.calls: Counter[str] = Counter()
        self.rejected: dict[str, str] = {}
        self.lose: Counter[str] = Counter()
        self.refuse: StoiloError | None = None

    def lose_answers(self, method: str, times: int) -> None:
        """Do the next calls of `method`, but let their answers get lost."""
        self.lose[method] += times

    async def CreateTask(self, request: pb.CreateTaskRequest, context: Any) -> Any:  # noqa: ANN401, N802
        """Store a task; the same key gives the same task."""
        await self._enter("CreateTask", context)
        created = self._create(request)
        if isinstance(created, StoiloError):
            await fail(context, created)
        await self._leave("CreateTask", context)
        return created

    def _create(
        self, request: pb.CreateTaskRequest
    ) -> pb.CreateTaskResponse | StoiloError:
        if self.refuse is not None:
            return self.refuse
        if any(name not in self.blobs for name in request.blobs):
            return UsageError("STO-R012", "a blob was not uploaded")
        task_id = self.keys.setdefault(request.idempotency_key, str(uuid.uuid4()))
        self.tasks.setdefault(task_id, _FakeTask(request, self.polls))
        return pb.CreateTaskResponse(task_id=task_id, level=request.level or "pure")

    async def CreateTasks(self, request: pb.CreateTasksRequest, context: Any) -> Any:  # noqa: ANN401, N802
        """Store many, each as `CreateTask`."""
        await self._enter("CreateTasks", context)
        found = [self._create(one) for one in request.tasks]
        faults = [one for one in found if isinstance(one, StoiloError)]
        if len(faults) == len(found):
            await fail(context, faults[0])
        await self._leave("CreateTasks", context)
        return pb.CreateTasksResponse(
            tasks=[
                pb.CreatedTask(error=detail_of(one))
                if isinstance(one, StoiloError)
                else pb.CreatedTask(task=one)
                for one in found
            ]
        )

    async def PollTask(self, request: pb.PollTaskRequest, context: Any) -> Any:  # noqa: ANN401, N802
        """Answer running a few times, then the outcome."""
        await self._enter("PollTask", context)
        task = await self._find(request.task_id, context)
        await self._go_on(task)
        await self._leave("PollTask", context)
        return self._answer(request.task_id, task)

    async def _go_on(self, task: _FakeTask) -> None:
        """Come nearer to the task's end by one poll; it is answered once, whoever asks."""
        if not task.state.final:
            task.polls_left -= 1
            if task.polls_left < 0:
                if task.answering is None or task.answering.done():
                    task.answering = asyncio.ensure_future(self._end(task))
                # Who asked may hang up meanwhile: its answer is the next one's.
                await asyncio.shield(task.answering)

    async def _end(self, task: _FakeTask) -> None:
        task.outcome = await asyncio.to_thread(self.answer, task.request, self)
        task.state = task.outcome.state

    async def WaitTasks(self, request: pb.WaitTasksRequest, context: Any) -> Any:  # noqa: ANN401, N802
        """Tell of each task's end; each comes nearer to it every `ROUND_S` s."""
        await self._enter("WaitTasks", context)
        waiting = list(request.task_ids)
        while waiting:
            for task_id in list(waiting):
                task = self.tasks.get(task_id)
                if task is not None:
                    await self._go_on(task)
                if task is None or task.state.final:
                    waiting.remove(task_id)
                    await self._leave("WaitTasks", context)
                    yield (
                        self._answer(task_id, task)
                        if task
                        else pb.PollTaskResponse(task_id=task_id)
                    )
            await asyncio.sleep(ROUND_S)

    async def ListTasks(self, request: pb.ListTasksRequest, context: Any) -> Any:  # noqa: ANN401, N802
        """List the newest first."""
        await self._enter("ListTasks", context)
        found = [
            pb.ListedTask(
                task_id=task_id,
                state=task.state.value,
                level=task.request.level or "pure",
                label=task.request.label,
                map_items=task.request.map_items,
                created_at=task.created_at,
            )
            for task_id, task in reversed(self.tasks.items())
            if task.state.value in (request.states or {task.state.value})
            and request.label in {"", task.request.label}
        ]
        await self._leave("ListTasks", context)
        return pb.ListTasksResponse(tasks=found[: request.limit or None])

    async def CancelTask(self, request: pb.CancelTaskRequest, context: Any) -> Any:  # noqa: ANN401, N802
        """Cancel unless final."""
        await self._enter("CancelTask", context)
        task = await self._find(request.task_id, context)
        if not task.state.final:
            task.state = TaskState.CANCELLED
        await self._leave("CancelTask", context)
        return pb.CancelTaskResponse(state=task.state.value)

    async def RejectResult(self, request: pb.RejectResultRequest, context: Any) -> Any:  # noqa: ANN401, N802
        """Note the reason."""
        await self._enter("RejectResult", context)
        await self._find(request.task_id, context)
        self.rejected[request.task_id] = request.reason
        await self._leave("RejectResult", context)
        return pb.RejectResultResponse(copies=1)

    async def UploadBlob(self, requests: Any, context: Any) -> Any:  # noqa: ANN401, N802
        """Keep a blob whose bytes fit its name."""
        await self._enter("UploadBlob", context)
        name, data = "", bytearray()
        async for message in requests:
            name = name or message.digest
            data += message.data
        if content_digest(data) != name:
            await fail(context, UsageError("STO-R012", "the blob is not its name's"))
        self.blobs[name] = bytes(data)
        await self._leave("UploadBlob", context)
        return pb.UploadBlobResponse(digest=name)

    async def DownloadBlob(self, request: Any, context: Any) -> Any:  # noqa: ANN401, N802
        """Send a blob in chunks."""
        await self._enter("DownloadBlob", context)
        data = self.blobs.get(request.digest)
        if data is None:
            await fail(context, DeniedError("STO-R003", "no such blob"))
            return
        for start in range(0, len(data), CHUNK):
            yield pb.DownloadBlobResponse(data=data[start : start + CHUNK])

    def _answer(self, task_id: str, task: _FakeTask) -> pb.PollTaskResponse:
        answer = pb.PollTaskResponse(
            task_id=task_id,
            state=task.state.value,
            level=task.request.level or "pure",
            created_at=task.created_at,
            attempt=1,
            retry_after_ms=20,
        )
        if not task.state.final:
            answer.explanation = "needs 2 distinct users, 1 attached"
        if task.outcome is not None and task.state is not TaskState.CANCELLED:
            self._fill(answer, task.outcome)
        return answer

    def _fill(self, answer: pb.PollTaskResponse, outcome: Outcome) -> None:
        if len(outcome.value) > self.inline_bytes:
            answer.value_blob = content_digest(outcome.value)
            self.blobs[answer.value_blob] = outcome.value
        else:
            answer.value = outcome.value
        answer.error_type = outcome.error_type
        answer.error_text = outcome.error_text
        answer.code = outcome.code
        if outcome.cpu_s:
            answer.copies.add(name="copy", outcome="success", cpu_s=outcome.cpu_s)
        for item in outcome.items:
            answer.items.add(
                state=item.state.value,
                value=item.value,
                error_type=item.error_type,
                error_text=item.error_text,
                code=item.code,
            )

    async def _find(self, task_id: str, context: Any) -> _FakeTask:  # noqa: ANN401
        if task_id not in self.tasks:
            await fail(context, DeniedError("STO-R003", "no such task"))
        return self.tasks[task_id]

    async def _enter(self, method: str, context: Any) -> None:  # noqa: ANN401
        if self.is_old and method in {"CreateTasks", "WaitTasks"}:
            await context.abort(grpc.StatusCode.UNIMPLEMENTED, "Method not found!")
        self.calls[method] += 1
        metadata = dict(context.invocation_metadata() or ())
        if self.token and metadata.get("authorization") != f"Bearer {self.token}":
            await fail(context, DeniedError("STO-R001", "unknown token"))

    async def _leave(self, method: str, context: Any) -> None:  # noqa: ANN401
        if self.lose[method] > 0:
            self.lose[method] -= 1
            await context.abort(grpc.StatusCode.UNAVAILABLE, "Socket closed")


def detail_of(error: StoiloError) -> pb.ErrorDetail:
    """Return an error as the server tells it."""
    detail = pb.ErrorDetail(
        code=error.code, message=error.message, hint=error.hint, family=error.family
    )
    for finding in getattr(error, "findings", ()):
        detail.findings.add(
            code=finding.code,
            severity=str(finding.severity),
            line=finding.line,
            column=finding.column,
            end_line=finding.end_line,
            end_column=finding.end_column,
            message=finding.message,
            hint=finding.hint,
        )
    return detail


async def fail(context: Any, error: StoiloError) -> None:  # noqa: ANN401 - grpc's own
    """End a call as the server does."""
    detail = detail_of(error)
    context.set_trailing_metadata(((ERROR_KEY, detail.SerializeToString()),))
    status = {
        "denied": grpc.StatusCode.NOT_FOUND,
        "policy": grpc.StatusCode.FAILED_PRECONDITION,
    }.get(error.family, grpc.StatusCode.INVALID_ARGUMENT)
    await context.abort(status, error.message)


@asynccontextmanager
async def serve_fake(service: FakeTaskService, port: int = 0) -> AsyncIterator[Address]:
    """Serve on loopback while the block runs; yields the address with its token.

    Args:
        service: what to serve; it may be served again later, with all its tasks.
        port: 0 takes a free one.
    """
    options = [("grpc.max_receive_message_length", BOUNDS.rpc_message_bytes)]
    server = grpc.aio.server(options=options)
    tasks_pb2_grpc.add_TaskServiceServicer_to_server(service, server)  # type: ignore[no-untyped-call]  # generated
    bound = server.add_insecure_port(f"127.0.0.1:{port}")
    await server.start()
    try:
        yield Address(f"127.0.0.1:{bound}", service.token, None, "fake")
    finally:
        await server.stop(0)
