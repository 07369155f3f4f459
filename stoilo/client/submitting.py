"""Submissions of one moment go out as one call: a step's tasks, a map's first chunks.

Only tasks of one source share a call, because the gate's answer to a new one is waited for.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Sequence
from typing import Any

from stoilo.client.wire import UNKNOWN_CALL, Wire, is_retryable, read_detail
from stoilo.core import tracing
from stoilo.core.errors import PolicyRefusal, StoiloError
from stoilo.core.rpc import tasks_pb2 as pb
from stoilo.core.types import BOUNDS

MOST_TASKS = 256  # the server's bound on one call
MOST_BYTES = BOUNDS.rpc_message_bytes // 2

# The request, its id, and the context of the span it is submitted in
Waiting = tuple[pb.CreateTaskRequest, asyncio.Future[str], str]


class Submitter:
    """Creates the tasks of one connection. For one event loop."""

    def __init__(self, wire: Wire, patience_s: float) -> None:
        self._wire, self._patience_s = wire, patience_s
        self._waiting: list[Waiting] = []
        self._sending: set[asyncio.Task[None]] = set()
        self._is_old = False  # the server takes one task a call

    async def create(self, request: pb.CreateTaskRequest) -> str:
        """Return the id of the task, together with what else is submitted just now."""
        loop = asyncio.get_running_loop()
        future: asyncio.Future[str] = loop.create_future()
        if not self._waiting:
            loop.call_soon(self._send_all)
        self._waiting.append((request, future, tracing.present()))
        return await future

    def _send_all(self) -> None:
        waiting, self._waiting = self._waiting, []
        for batch in _batches(waiting):
            work = asyncio.ensure_future(self._send(batch))
            self._sending.add(work)
            work.add_done_callback(self._sending.discard)

    async def _send(self, batch: Sequence[Waiting]) -> None:
        """Give each its id or its error; it never raises."""
        if len(batch) == 1 or self._is_old:
            await asyncio.gather(*(self._send_one(one) for one in batch))
            return
        request = pb.CreateTasksRequest(tasks=[one for one, _, _ in batch])
        try:
            answer = await self._call("CreateTasks", request, batch)
        except StoiloError as error:
            self._is_old |= error.code == UNKNOWN_CALL
            # A refused source is refused for all; else each hears its own answer.
            if is_retryable(error) or isinstance(error, PolicyRefusal):
                _fail(batch, error)
            else:
                await asyncio.gather(*(self._send_one(one) for one in batch))
            return
        except BaseException as error:
            _fail(batch, error)
            raise
        for one, created in zip(batch, answer.tasks, strict=True):
            await self._settle(one, created)

    async def _settle(self, one: Waiting, created: pb.CreatedTask) -> None:
        error = read_detail(created.error) if created.HasField("error") else None
        if error is not None and is_retryable(error):
            await self._send_one(one)
        elif error is not None:
            _fail([one], error)
        elif not one[1].done():
            one[1].set_result(created.task.task_id)

    async def _send_one(self, one: Waiting) -> None:
        request, future, _ = one
        try:
            answer = await self._call("CreateTask", request, [one])
        except BaseException as error:  # noqa: BLE001 - its caller gets it
            _fail([one], error)
            return
        if not future.done():
            future.set_result(str(answer.task_id))

    async def _call(
        self, method: str, request: object, batch: Sequence[Waiting]
    ) -> Any:  # noqa: ANN401 - the method's own response
        traces = [trace for _, _, trace in batch]
        return await self._wire.be_patient(
            lambda: self._wire.call(method, request, traces=traces),
            patience_s=self._patience_s,
        )


def _batches(waiting: Sequence[Waiting]) -> Iterator[list[Waiting]]:
    """Yield what goes out together: one source, and within a message's bounds."""
    by_source: dict[tuple[bytes, bytes], list[Waiting]] = {}
    for one in waiting:
        source = (one[0].task_module, one[0].validator_module)
        by_source.setdefault(source, []).append(one)
    for same in by_source.values():
        batch, size = list[Waiting](), 0
        for one in same:
            more = one[0].ByteSize()
            most = tracing.MOST_SENT if one[2] else MOST_TASKS
            if batch and (size + more > MOST_BYTES or len(batch) >= most):
                yield batch
                batch, size = [], 0
            batch.append(one)
            size += more
        yield batch


def _fail(batch: Sequence[Waiting], error: BaseException) -> None:
    for _, future, _ in batch:
        if not future.done():
            future.set_exception(error)
