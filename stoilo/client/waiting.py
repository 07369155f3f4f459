"""One stream tells when any task that this connection waits for has ended.

It is opened anew when there is another task to wait for, when the server ends it, and,
with growing pauses, when the server is away. A server that has no such call is polled.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass

from stoilo.client.wire import UNKNOWN_CALL, Wire
from stoilo.core.errors import StoiloError
from stoilo.core.rate_limit import RECONNECTING
from stoilo.core.rpc import tasks_pb2 as pb
from stoilo.core.types import TaskState

MOST_TASKS = 1024  # the server's bound on one call; further ones wait for a place
GATHER_S = 0.01  # so long a new stream waits for what else is to be waited for
STREAM_S = 900.0  # longer than the server lets one last

Answer = pb.PollTaskResponse
_FINAL = frozenset(state.value for state in TaskState if state.final)


@dataclass(eq=False)
class _Awaited:
    """One task, and how many wait for it."""

    ended: asyncio.Future[Answer | None]
    waiters: int = 0


class Waiting:
    """What the tasks of one connection wait for. For one event loop."""

    def __init__(self, wire: Wire) -> None:
        self._wire = wire
        self._tasks: dict[str, _Awaited] = {}
        self._changed = asyncio.Event()  # there is more to ask for, or nothing
        self._following: asyncio.Task[None] | None = None
        self._is_old = False  # the server has no such call

    async def end_of(self, task_id: str) -> Answer | None:
        """Wait until a task is final and return its answer; None: it has to be polled."""
        if self._is_old:
            return None
        if task_id not in self._tasks:
            ended = asyncio.get_running_loop().create_future()
            self._tasks[task_id] = _Awaited(ended)
            self._changed.set()
        if self._following is None or self._following.done():
            self._following = asyncio.create_task(self._follow())
        awaited = self._tasks[task_id]
        awaited.waiters += 1
        try:
            return await asyncio.shield(awaited.ended)
        finally:
            awaited.waiters -= 1
            if not awaited.waiters and self._tasks.get(task_id) is awaited:
                del self._tasks[task_id]
                if not self._tasks:
                    self._changed.set()

    async def close(self) -> None:
        """Stop: nobody waits any more."""
        if self._following is not None:
            self._following.cancel()
            await asyncio.wait([self._following])

    async def _follow(self) -> None:
        """Keep a stream open while somebody waits."""
        pauses = RECONNECTING()
        try:
            while self._tasks:
                await asyncio.sleep(GATHER_S)
                if await self._wire.be_patient(self._read, patience_s=None):
                    await asyncio.sleep(pauses.next_pause())
                else:
                    pauses.reset()
        except StoiloError as error:
            self._is_old = error.code == UNKNOWN_CALL
        finally:  # whatever has happened, they can be polled
            for awaited in self._tasks.values():
                if not awaited.ended.done():
                    awaited.ended.set_result(None)
            self._tasks.clear()

    async def _read(self) -> bool:
        """Take answers until there is more to ask for; True: the server ended it at once."""
        self._changed.clear()
        asked = [*self._tasks][:MOST_TASKS]
        if not asked:
            return False
        request, left = pb.WaitTasksRequest(task_ids=asked), set(asked)
        stream = self._wire.stream("WaitTasks", request, timeout_s=STREAM_S)
        changed = asyncio.ensure_future(self._changed.wait())
        told = asyncio.ensure_future(anext(stream, None))
        try:
            while True:
                await asyncio.wait({changed, told}, return_when=asyncio.FIRST_COMPLETED)
                if not told.done():
                    return False
                answer = told.result()
                if answer is None:
                    return len(left) == len(asked)
                self._take(answer)
                left.discard(answer.task_id)
                if len(left) < MOST_TASKS // 2 and len(self._tasks) > len(left):
                    return False
                told = asyncio.ensure_future(anext(stream, None))
        finally:
            changed.cancel()
            told.cancel()
            await asyncio.wait({changed, told})
            if not told.cancelled():
                told.exception()  # seen: whoever was told has it, or nobody waits
            await stream.aclose()

    def _take(self, answer: Answer) -> None:
        awaited = self._tasks.pop(answer.task_id, None)
        if awaited is not None and not awaited.ended.done():
            awaited.ended.set_result(answer if answer.state in _FINAL else None)
