"""Both services over grpc.aio: deadlines, sizes, and every error with its code (design §7).

A failed call carries an `ErrorDetail` in the trailing metadata ``stoilo-error-bin`` and
the gRPC status that fits. Nothing of the server's inside (paths, SQL, tracebacks) leaves.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from functools import partial
from typing import IO, TYPE_CHECKING, Any, TypeVar

import grpc

from stoilo.core import tracing
from stoilo.core.errors import InternalError, StoiloError, UsageError
from stoilo.core.rpc import reviews_pb2 as reviews
from stoilo.core.rpc import reviews_pb2_grpc, tasks_pb2_grpc
from stoilo.core.rpc import tasks_pb2 as pb
from stoilo.server.admission import tokens
from stoilo.server.admission.fairness import FairTurns, in_thread
from stoilo.server.admission.submission import READING, Submissions
from stoilo.server.api.waiting import Ends
from stoilo.server.db.store import AWAY

if TYPE_CHECKING:
    from stoilo.policies.policy import Policy
    from stoilo.server.admission.blobs import BlobStore, BlobUpload
    from stoilo.server.api.tasks import TaskDesk
    from stoilo.server.db.records import Owner, TaskRow
    from stoilo.server.db.store import Store
    from stoilo.server.reviews.desk import ReviewDesk


LOGGER = logging.getLogger(__name__)
ERROR_KEY = "stoilo-error-bin"
CHUNK_BYTES = 256 * 1024  # each costs a thread's turn; larger ones cost fresh pages
LONGEST_CALL_S = 60.0
LONGEST_STREAM_S = 3600.0
LONGEST_WAIT_S = 600.0  # then the caller asks again
MOST_CREATED = 256  # tasks of one call
SMALL_BYTES = 64 * 1024  # an answer of no more needs no room of its own
DETAIL_BYTES = 6 * 1024  # trailing metadata must stay below gRPC's 8 KiB of headers
Context = Any  # grpc.aio.ServicerContext has no usable types
AnswerT = TypeVar("AnswerT")

STATUS_BY_CODE = {
    "STO-R001": grpc.StatusCode.UNAUTHENTICATED,
    "STO-R002": grpc.StatusCode.PERMISSION_DENIED,
    "STO-R004": grpc.StatusCode.RESOURCE_EXHAUSTED,
    "STO-R005": grpc.StatusCode.RESOURCE_EXHAUSTED,
    "STO-R006": grpc.StatusCode.RESOURCE_EXHAUSTED,
    "STO-R007": grpc.StatusCode.RESOURCE_EXHAUSTED,
    "STO-R008": grpc.StatusCode.RESOURCE_EXHAUSTED,
    "STO-R009": grpc.StatusCode.PERMISSION_DENIED,
    "STO-R011": grpc.StatusCode.ALREADY_EXISTS,
    "STO-R030": grpc.StatusCode.UNAVAILABLE,
    AWAY: grpc.StatusCode.UNAVAILABLE,
    "STO-T027": grpc.StatusCode.RESOURCE_EXHAUSTED,
    "STO-R033": grpc.StatusCode.DEADLINE_EXCEEDED,
}
STATUS_BY_FAMILY = {
    "usage": grpc.StatusCode.INVALID_ARGUMENT,
    "trust": grpc.StatusCode.INVALID_ARGUMENT,
    "policy": grpc.StatusCode.FAILED_PRECONDITION,
    "denied": grpc.StatusCode.NOT_FOUND,
}


NOT_BY_ITSELF = frozenset({grpc.StatusCode.UNAVAILABLE, grpc.StatusCode.INTERNAL})
"""Ends of calls that say nothing of one task among many."""


def status_of(error: StoiloError) -> grpc.StatusCode:
    """Return the gRPC status that goes with `error`."""
    fallback = STATUS_BY_FAMILY.get(error.family, grpc.StatusCode.INTERNAL)
    return STATUS_BY_CODE.get(error.code, fallback)


def render_detail(error: StoiloError) -> bytes:
    """Return the `ErrorDetail` of `error`, as many findings as fit."""
    detail = pb.ErrorDetail(
        code=error.code,
        message=error.message[:1000],
        hint=error.hint[:1000],
        family=error.family,
    )
    for finding in getattr(error, "findings", ()):
        message = pb.Finding(
            code=finding.code,
            severity=str(finding.severity),
            line=finding.line,
            column=finding.column,
            end_line=finding.end_line,
            end_column=finding.end_column,
            message=finding.message[:500],
            hint=finding.hint[:500],
        )
        if detail.ByteSize() + message.ByteSize() > DETAIL_BYTES:
            break
        detail.findings.append(message)
    return detail.SerializeToString()


def bearer_token(context: Context) -> str:
    """Return the caller's token from ``authorization: Bearer …``, empty without."""
    for key, value in context.invocation_metadata() or ():
        if key == "authorization" and isinstance(value, str):
            scheme, _, token = value.partition(" ")
            return token if scheme.lower() == "bearer" else ""
    return ""


def _created(found: TaskRow | BaseException) -> pb.CreatedTask:
    """Return the answer to one request among many."""
    if isinstance(found, StoiloError):
        return pb.CreatedTask(error=pb.ErrorDetail.FromString(render_detail(found)))
    assert not isinstance(found, BaseException)  # noqa: S101 - raised before
    task = pb.CreateTaskResponse(task_id=found.task_id, level=found.spec.level)
    return pb.CreatedTask(task=task)


def _discard(started: asyncio.Task[BlobUpload]) -> None:
    """Remove what an upload that nobody waits for has begun."""
    if not started.cancelled() and started.exception() is None:
        with started.result():
            pass


async def fail(context: Context, error: StoiloError) -> None:
    """End the call with `error`; never returns."""
    context.set_trailing_metadata(((ERROR_KEY, render_detail(error)),))
    text = f"{error.message} [{error.code}]"
    await context.abort(status_of(error), text[:1000])


async def answer(context: Context, call: Awaitable[AnswerT], limit_s: float) -> AnswerT:
    """Await `call` within the caller's deadline and ours; errors become statuses."""
    remaining = context.time_remaining()
    timeout = limit_s if remaining is None else min(limit_s, remaining)
    try:
        return await asyncio.wait_for(call, timeout)
    except StoiloError as error:
        await fail(context, error)
    except TimeoutError:
        await fail(context, InternalError("STO-R033", "the call took too long"))
    except Exception:  # process edge: the caller gets a code, the operator the trace
        LOGGER.exception("a call failed")
        await fail(context, InternalError("STO-R034", "the server has a fault"))
    raise AssertionError  # abort has raised


Work = Callable[["Owner", Any], Any]
"""Does a call for an owner: request → response; blocks."""


class Calls:
    """What the services share: each call in a worker thread, for an owner whom it suits."""

    _check: Callable[[Owner, str], None]

    def __init__(
        self, store: Store, clock: Callable[[], int], works: Mapping[str, Work]
    ) -> None:
        self.store = store
        self.clock = clock
        self.works = works

    def _owner(self, token: str, rpc: str) -> Owner:
        with self.store.read() as connection:
            owner = tokens.find_owner(connection, token, self.clock())
        self._check(owner, rpc)
        return owner

    async def _call(
        self, context: Context, rpc: str, work: Callable[[Owner], Any]
    ) -> Any:  # noqa: ANN401 - any message
        token = bearer_token(context)

        def checked() -> Any:  # noqa: ANN401
            """Permission first."""
            return work(self._owner(token, rpc))

        return await answer(context, asyncio.to_thread(checked), LONGEST_CALL_S)


def served(rpc: str) -> Callable[[Calls, Any, Context], Awaitable[Any]]:
    """Return the method of a call whose work is in the service's table."""

    async def serve(calls: Calls, request: Any, context: Context) -> Any:  # noqa: ANN401
        return await calls._call(  # noqa: SLF001 - a method of it
            context, rpc, lambda owner: calls.works[rpc](owner, request)
        )

    return serve


class ReviewService(Calls, reviews_pb2_grpc.ReviewServiceServicer):
    """A reviewer's four calls, each for role `reviewer` only."""

    _check = staticmethod(tokens.check_reviewer)
    ListReviews = served("ListReviews")
    GetReview = served("GetReview")
    SubmitReview = served("SubmitReview")
    RefuseTask = served("RefuseTask")

    def __init__(
        self, store: Store, desk: ReviewDesk, clock: Callable[[], int]
    ) -> None:
        works: dict[str, Work] = {
            "ListReviews": lambda owner, asked: desk.list_waiting(owner, asked.limit),
            "GetReview": lambda _, asked: desk.get(asked.task_id),
            "SubmitReview": lambda owner, asked: reviews.SubmitReviewResponse(
                released=desk.submit(owner, asked.task_id, asked.envelope)
            ),
            "RefuseTask": lambda owner, asked: reviews.RefuseTaskResponse(
                state=desk.refuse(owner, asked.task_id, asked.reason).value
            ),
        }
        super().__init__(store, clock, works)


class TaskService(Calls, tasks_pb2_grpc.TaskServiceServicer):
    """The researcher's calls; every one checks the owner.

    Attributes:
        early: by name of a call, what raises for an owner whom it would refuse anyway.

    Uploads are read in `turns`, which whoever reads large values shares.
    """

    _check = staticmethod(tokens.check_permission)
    PollTask = served("PollTask")
    ListTasks = served("ListTasks")
    CancelTask = served("CancelTask")
    RejectResult = served("RejectResult")

    def __init__(
        self,
        store: Store,
        submissions: Submissions,
        desk: TaskDesk,
        blobs: BlobStore,
        policy: Policy,
        clock: Callable[[], int],
        turns: FairTurns | None = None,
    ) -> None:
        works: dict[str, Work] = {
            "PollTask": lambda owner, asked: desk.poll(owner, asked.task_id),
            "ListTasks": desk.list_tasks,
            "CancelTask": lambda owner, asked: pb.CancelTaskResponse(
                state=desk.cancel(owner, asked.task_id).value
            ),
            "RejectResult": lambda owner, asked: pb.RejectResultResponse(
                copies=desk.reject(owner, asked.task_id, asked.reason)
            ),
        }
        super().__init__(store, clock, works)
        self._turns = turns or FairTurns(READING)
        self._submissions = submissions
        self._blobs = blobs
        self._policy = policy
        self._desk = desk
        self.ends = Ends(store)
        self.early: Mapping[str, Callable[[Owner], None]] = {
            "CreateTask": submissions.check_early,
            "CreateTasks": submissions.check_early,
        }

    async def CreateTask(  # noqa: N802 - gRPC's name
        self, request: pb.CreateTaskRequest, context: Context
    ) -> pb.CreateTaskResponse:
        """Store one task durably; see `Submissions.create`."""
        began = time.time_ns()
        work = self._submissions.create(bearer_token(context), request)
        row = await answer(context, work, LONGEST_CALL_S)
        tracing.begin(context.invocation_metadata(), [row.task_id], began)
        return pb.CreateTaskResponse(task_id=row.task_id, level=row.spec.level)

    async def CreateTasks(  # noqa: N802
        self, request: pb.CreateTasksRequest, context: Context
    ) -> pb.CreateTasksResponse:
        """Store many tasks; they share each step, as calls at the same time would."""
        began = time.time_ns()
        work = self._create_all(bearer_token(context), request.tasks)
        created = await answer(context, work, LONGEST_CALL_S)
        ids = [one.task.task_id for one in created]
        tracing.begin(context.invocation_metadata(), ids, began)
        return pb.CreateTasksResponse(tasks=created)

    async def _create_all(
        self, token: str, asked: Sequence[pb.CreateTaskRequest]
    ) -> list[pb.CreatedTask]:
        """Return an answer for each; raises where none succeeded, or all may be repeated."""
        if not 1 <= len(asked) <= MOST_CREATED:
            raise UsageError("STO-R010", f"a call creates 1 to {MOST_CREATED} tasks")
        calls = (self._submissions.create(token, one) for one in asked)
        found = await asyncio.gather(*calls, return_exceptions=True)
        faults = [one for one in found if isinstance(one, BaseException)]
        for fault in faults:
            is_own = isinstance(fault, StoiloError)
            if not is_own or status_of(fault) in NOT_BY_ITSELF:  # type: ignore[arg-type]  # checked
                raise fault
        if len(faults) == len(asked):  # so that it counts as a call for nothing
            raise faults[0]
        return [_created(one) for one in found]

    async def WaitTasks(  # noqa: N802
        self, request: pb.WaitTasksRequest, context: Context
    ) -> AsyncIterator[pb.PollTaskResponse]:
        """Tell of each task once it is final; see the wire contract."""
        asked = list(dict.fromkeys(request.task_ids))
        owned = await self._call(
            context, "PollTask", lambda owner: self._desk.owned(owner, asked)
        )
        for task_id in set(asked) - owned:
            yield pb.PollTaskResponse(task_id=task_id)
        until = asyncio.get_running_loop().time() + LONGEST_WAIT_S
        waiting = set(owned)
        while waiting:
            try:
                async with asyncio.timeout_at(until):
                    ended = await self.ends.wait(waiting)
            except TimeoutError:
                return
            if not ended:
                return
            waiting -= ended
            for task_id in ended:
                yield await self._call(
                    context, "PollTask", partial(self._tell, task_id)
                )

    def _tell(self, task_id: str, owner: Owner) -> pb.PollTaskResponse:
        """Return what polling a task would, or only its name where that has to be asked."""
        try:
            found = self._desk.poll(owner, task_id)
        except StoiloError as error:
            if status_of(error) in NOT_BY_ITSELF:
                raise
            return pb.PollTaskResponse(task_id=task_id)
        is_small = found.ByteSize() <= SMALL_BYTES
        return found if is_small else pb.PollTaskResponse(task_id=task_id)

    async def UploadBlob(  # noqa: N802
        self, requests: AsyncIterator[pb.UploadBlobRequest], context: Context
    ) -> pb.UploadBlobResponse:
        """Take one blob; every byte is read whether or not we hold it already."""
        token = bearer_token(context)
        digest = await answer(context, self._upload(token, requests), LONGEST_STREAM_S)
        return pb.UploadBlobResponse(digest=digest)

    async def _begin(self, owner: Owner, first: pb.UploadBlobRequest) -> BlobUpload:
        """Start an upload; one whose client hangs up meanwhile is discarded once begun."""
        quota = self._policy.quota(owner.role)
        started = asyncio.create_task(
            asyncio.to_thread(
                self._blobs.begin, owner.account_id, first.digest, first.size, quota
            )
        )
        try:
            return await asyncio.shield(started)
        except asyncio.CancelledError:
            started.add_done_callback(_discard)
            raise

    async def _upload(
        self, token: str, requests: AsyncIterator[pb.UploadBlobRequest]
    ) -> str:
        owner = await asyncio.to_thread(self._owner, token, "UploadBlob")
        first = await anext(aiter(requests), None)
        if first is None:
            raise UsageError("STO-R010", "the upload is empty")
        upload = await self._begin(owner, first)
        with upload:
            await in_thread(partial(upload.feed, first.data))
            async for message in requests:
                await in_thread(partial(upload.feed, message.data))
            async with self._turns.one(owner.account_id):
                return await in_thread(upload.finish)

    async def DownloadBlob(  # noqa: N802
        self, request: pb.DownloadBlobRequest, context: Context
    ) -> AsyncIterator[pb.DownloadBlobResponse]:
        """Send a blob that the caller owns, in chunks."""

        def begin(owner: Owner) -> IO[bytes]:
            return self._blobs.open_granted(owner.account_id, request.digest)

        file = await self._call(context, "DownloadBlob", begin)
        try:
            while data := await asyncio.to_thread(file.read, CHUNK_BYTES):
                yield pb.DownloadBlobResponse(data=data)
        finally:
            file.close()
