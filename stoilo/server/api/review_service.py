"""ReviewService over grpc.aio: a reviewer's four calls, each for role `reviewer` only."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, TypeVar

from stoilo.core.rpc import reviews_pb2 as pb
from stoilo.core.rpc import reviews_pb2_grpc
from stoilo.server.admission import tokens
from stoilo.server.api.service import LONGEST_CALL_S, answer, bearer_token

if TYPE_CHECKING:
    from stoilo.server.db.records import Owner
    from stoilo.server.db.store import Store
    from stoilo.server.reviews.desk import ReviewDesk


Context = Any  # grpc.aio.ServicerContext has no usable types
AnswerT = TypeVar("AnswerT")


class ReviewService(reviews_pb2_grpc.ReviewServiceServicer):
    """The desk behind gRPC."""

    def __init__(
        self, store: Store, desk: ReviewDesk, clock: Callable[[], int]
    ) -> None:
        self._store = store
        self._desk = desk
        self._clock = clock

    async def _call(
        self, context: Context, rpc: str, work: Callable[[Owner], AnswerT]
    ) -> AnswerT:
        """Do `work` in a worker thread for an authenticated reviewer."""
        token = bearer_token(context)

        def checked() -> AnswerT:
            """Permission first."""
            with self._store.read() as connection:
                owner = tokens.find_owner(connection, token, self._clock())
            tokens.check_reviewer(owner, rpc)
            return work(owner)

        return await answer(context, asyncio.to_thread(checked), LONGEST_CALL_S)

    async def ListReviews(  # noqa: N802 - gRPC's name
        self, request: pb.ListReviewsRequest, context: Context
    ) -> pb.ListReviewsResponse:
        """List what waits."""
        return await self._call(
            context,
            "ListReviews",
            lambda owner: self._desk.list_waiting(owner, request.limit),
        )

    async def GetReview(  # noqa: N802
        self, request: pb.GetReviewRequest, context: Context
    ) -> pb.GetReviewResponse:
        """Show one task as it would be admitted."""
        return await self._call(
            context, "GetReview", lambda _: self._desk.get(request.task_id)
        )

    async def SubmitReview(  # noqa: N802
        self, request: pb.SubmitReviewRequest, context: Context
    ) -> pb.SubmitReviewResponse:
        """Take a signed review."""
        released = await self._call(
            context,
            "SubmitReview",
            lambda owner: self._desk.submit(owner, request.task_id, request.envelope),
        )
        return pb.SubmitReviewResponse(released=released)

    async def RefuseTask(  # noqa: N802
        self, request: pb.RefuseTaskRequest, context: Context
    ) -> pb.RefuseTaskResponse:
        """End a task that waits."""
        state = await self._call(
            context,
            "RefuseTask",
            lambda owner: self._desk.refuse(owner, request.task_id, request.reason),
        )
        return pb.RefuseTaskResponse(state=state.value)
