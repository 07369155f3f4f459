"""`stoilo.as_completed`: tasks in the order in which they finish."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Iterable, Iterator
from typing import TYPE_CHECKING, Any

from stoilo.client.task import StagedTask, SubmittedTask

if TYPE_CHECKING:
    from stoilo.client.sync import SyncSubmittedTask

__all__ = ["AsCompleted", "as_completed"]


class AsCompleted:
    """Tasks as they finish: ``async for`` or, for tasks of the sync face, ``for``."""

    def __init__(self, tasks: Iterable[Any], timeout: float | None) -> None:
        self._tasks = list(tasks)
        self._timeout = timeout

    async def __aiter__(self) -> AsyncIterator[SubmittedTask[Any]]:
        """Yield each task once it is final; stops early when the time is over."""
        waits = {asyncio.ensure_future(_finish(task)) for task in self._tasks}
        end = None if self._timeout is None else time.monotonic() + self._timeout
        try:
            while waits:
                left = None if end is None else max(0.0, end - time.monotonic())
                done, waits = await asyncio.wait(
                    waits, timeout=left, return_when=asyncio.FIRST_COMPLETED
                )
                if not done:
                    return
                for finished in done:
                    yield finished.result()
        finally:
            for wait in waits:
                wait.cancel()

    def __iter__(self) -> Iterator[SyncSubmittedTask[Any]]:
        """Yield tasks of the synchronous face."""
        from stoilo.client.sync import iterate_completed  # noqa: PLC0415 - a cycle else

        return iterate_completed(self._tasks, self._timeout)


async def _finish(task: StagedTask[Any] | SubmittedTask[Any]) -> SubmittedTask[Any]:
    submitted = await task.submit() if isinstance(task, StagedTask) else task
    await submitted.wait()
    return submitted


def as_completed(tasks: Iterable[Any], timeout: float | None = None) -> AsCompleted:
    """Return the tasks in the order in which they finish.

    Args:
        tasks: staged (they are submitted) or submitted tasks of one face.
        timeout: s; the iteration ends then, unfinished tasks are left out. None waits.
    """
    return AsCompleted(tasks, timeout)
