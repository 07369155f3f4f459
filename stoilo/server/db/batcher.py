"""Group commit for callers on one event loop: many requests, one durable step."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from typing import Generic, TypeVar

ItemT = TypeVar("ItemT")
AnswerT = TypeVar("AnswerT")


class Batcher(Generic[ItemT, AnswerT]):
    """Collects items while one batch is being worked on, then works on the next.

    `work` runs in a worker thread and returns, for each item, an answer or the
    exception that the item's caller gets. An exception that `work` raises goes to every
    caller of the batch. No timer: an idle server answers at once, a busy one in groups.
    """

    def __init__(
        self,
        work: Callable[[Sequence[ItemT]], Sequence[AnswerT | Exception]],
        largest: int = 256,
    ) -> None:
        self._work = work
        self._largest = largest
        self._waiting: list[tuple[ItemT, asyncio.Future[AnswerT]]] = []
        self._batch: list[tuple[ItemT, asyncio.Future[AnswerT]]] = []
        self._worker: asyncio.Task[None] | None = None

    @property
    def idle(self) -> bool:
        """Whether nothing is waiting or being worked on."""
        return not self._waiting and not self._batch

    async def submit(self, item: ItemT) -> AnswerT:
        """Return the answer to `item` once its batch is done, or raise its error."""
        future: asyncio.Future[AnswerT] = asyncio.get_running_loop().create_future()
        self._waiting.append((item, future))
        if self._worker is None or self._worker.done():
            self._worker = asyncio.create_task(self._drain())
        return await future

    async def _drain(self) -> None:
        while self._waiting:
            # Whose caller has gone, by his deadline or by himself, is not worked for.
            waiting = [one for one in self._waiting if not one[1].done()]
            batch = self._batch = waiting[: self._largest]
            self._waiting = waiting[self._largest :]
            if not batch:
                return
            items = [item for item, _ in batch]
            try:
                answers = await asyncio.to_thread(self._work, items)
            except Exception as error:  # noqa: BLE001 - handed to every caller
                answers = [error] * len(batch)
            except BaseException:  # the loop ends: nobody may wait for ever
                for _, future in [*batch, *self._waiting]:
                    future.cancel()
                raise
            for (_, future), answer in zip(batch, answers, strict=True):
                if future.done():  # the caller's deadline passed
                    continue
                if isinstance(answer, Exception):
                    future.set_exception(answer)
                else:
                    future.set_result(answer)
            self._batch = []
