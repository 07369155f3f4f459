"""`stoilo.Executor`: a real `concurrent.futures.Executor` whose workers are volunteers."""

from __future__ import annotations

import asyncio
import concurrent.futures
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from typing import Any, ParamSpec, TypeVar, cast

from stoilo.client.connection import Where
from stoilo.client.mapping import MapRun
from stoilo.client.options import TaskLimits, TaskOptions, make_options
from stoilo.client.results import SystemError as TaskSystemError
from stoilo.client.results import TimedOut, UserError
from stoilo.client.sync import SyncConnection, background, connect_sync
from stoilo.client.task import StagedTask, SubmittedTask
from stoilo.core.types import Redundancy

P = ParamSpec("P")
T = TypeVar("T")


class TaskFuture(concurrent.futures.Future[T]):
    """A future of one task. Cancelling it also cancels the task at the server.

    It counts as pending until the outcome is there, so that it stays cancellable.
    """

    def __init__(self) -> None:
        super().__init__()
        self._submitted: SubmittedTask[T] | None = None
        self._ending = threading.RLock()

    @property
    def task_id(self) -> str | None:
        """The task's id once the server has it; restore it from any process."""
        return self._submitted.task_id if self._submitted else None

    def cancel(self) -> bool:
        """Cancel here and at the server; False when the outcome is there already."""
        with self._ending:
            if self.done():
                return self.cancelled()
            super().cancel()
            self.set_running_or_notify_cancel()  # wakes those who wait
        if self._submitted is not None:
            asyncio.run_coroutine_threadsafe(
                _cancel_quietly(self._submitted), background.loop()
            )
        return True

    def end(self, outcome: object) -> None:
        """Take the outcome unless the future was cancelled meanwhile."""
        with self._ending:
            if self.done():
                return
            if isinstance(outcome, Exception):
                self.set_exception(outcome)
            else:
                self.set_result(cast("T", outcome))


async def _cancel_quietly(task: SubmittedTask[Any]) -> None:
    """Tell the server; nobody waits for the answer."""
    await asyncio.wait({asyncio.ensure_future(task.cancel())})


class Executor(concurrent.futures.Executor):
    """Run ``fn(*args, **kwargs)`` on volunteers' computers.

    The function's exception is raised by ``future.result()`` as a `UserError` that also
    is the builtin exception it was; a missing quorum raises `SystemError`.

    Args:
        connection: a `SyncConnection`, or what `stoilo.connect_sync` takes; a connection
            made here is closed at shutdown.
        redundancy_options: for every task.
        flavor: for every task.
        level: for every task.
        limits: for every task.
    """

    def __init__(
        self,
        connection: SyncConnection | Where = None,
        *,
        redundancy_options: Redundancy | None = None,
        flavor: str | None = None,
        level: str | None = None,
        limits: TaskLimits | None = None,
    ) -> None:
        self._options: TaskOptions = make_options(
            redundancy_options, flavor, level, limits, "", publish_source=False
        )
        self._owned = not isinstance(connection, SyncConnection)
        self._connection = (
            connection
            if isinstance(connection, SyncConnection)
            else connect_sync(connection)
        )
        self._lock = threading.Lock()
        self._open = True
        self._futures: set[TaskFuture[Any]] = set()

    def submit(
        self, fn: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs
    ) -> TaskFuture[T]:
        """Capture the call and submit it; returns at once.

        Raises:
            UsageError: ``STO-C…`` when something cannot travel.
            RuntimeError: after `shutdown`, as the standard library does.
        """
        call = {"args": list(args), "kwargs": dict(kwargs)}
        session = self._connection._core.session  # noqa: SLF001 - one package
        captured = session.captures.calls(fn, [call], spread=True).pack_one()
        future: TaskFuture[T] = TaskFuture()
        with self._lock:
            self._check_open()
            self._futures.add(future)
        future.add_done_callback(self._futures.discard)
        staged: StagedTask[T] = StagedTask(session, captured, self._options)
        asyncio.run_coroutine_threadsafe(_follow(staged, future), background.loop())
        return future

    def map(
        self,
        fn: Callable[..., T],
        *iterables: Iterable[Any],
        timeout: float | None = None,
        chunksize: int = 1,
    ) -> Iterator[T]:
        """Return results in order, as the standard library does.

        Args:
            fn: called with one element of each iterable.
            iterables: consumed at once; the shortest ends the map.
            timeout: s, for the whole map; then `TimeoutError`.
            chunksize: calls a task; 1 lets measured cost decide.
        """
        with self._lock:
            self._check_open()
        calls = [
            {"args": list(args), "kwargs": {}} for args in zip(*iterables, strict=False)
        ]
        session = self._connection._core.session  # noqa: SLF001 - one package
        captured = session.captures.calls(fn, calls, spread=True) if calls else None
        chunk = chunksize if chunksize > 1 else None
        run: MapRun[T] = MapRun(session, captured, self._options, chunk)
        work = asyncio.run_coroutine_threadsafe(run.results(), background.loop())
        end = None if timeout is None else time.monotonic() + timeout
        return _in_order(run, work, end)

    def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:
        """Take no more work; see `concurrent.futures.Executor.shutdown`."""
        with self._lock:
            self._open = False
            pending = list(self._futures)
        if cancel_futures:
            for future in pending:
                future.cancel()
        if wait:
            concurrent.futures.wait(pending)
            if self._owned:
                self._connection.close()

    def _check_open(self) -> None:
        if not self._open:
            raise RuntimeError("cannot schedule new futures after shutdown")


async def _follow(staged: StagedTask[Any], future: TaskFuture[Any]) -> None:
    """Carry one task's outcome into its future; every error ends there."""
    try:
        if future.cancelled():
            return
        future._submitted = submitted = await staged.submit()  # noqa: SLF001 - one class pair
        if future.cancelled():
            await submitted.cancel()
            return
        outcome = await submitted.result()
    except Exception as error:  # noqa: BLE001 - process edge: the future's owner gets it
        outcome = error
    future.end(outcome)


def _in_order(
    run: MapRun[Any], work: concurrent.futures.Future[list[Any]], end: float | None
) -> Iterator[Any]:
    """Yield results in order and raise the first error, as the base class does."""
    try:
        left = None if end is None else max(0.0, end - time.monotonic())
        for outcome in work.result(left):
            if isinstance(outcome, UserError | TaskSystemError | TimedOut):
                raise outcome
            yield outcome
    finally:
        if not work.done():
            work.cancel()
            background.run(run.cancel())
