"""`stoilo.Executor`: a real `concurrent.futures.Executor` whose workers are volunteers."""

from __future__ import annotations

import asyncio
import concurrent.futures
import threading
import time
from collections import deque
from collections.abc import Callable, Coroutine, Iterable, Iterator, Sequence
from typing import Any, ParamSpec, TypeVar, cast

from stoilo.client.connection import Where
from stoilo.client.mapping import MapRun
from stoilo.client.options import TaskLimits, TaskOptions, make_options
from stoilo.client.sync import SyncConnection, background, connect_sync
from stoilo.client.task import StagedTask, SubmittedTask
from stoilo.core.errors import UsageError
from stoilo.core.types import Redundancy

P = ParamSpec("P")
T = TypeVar("T")

# How long a closing executor waits until the server has heard what was cancelled, s
GOODBYE_S = 5.0


class TaskFuture(concurrent.futures.Future[T]):
    """A future of one task. Cancelling it also cancels the task at the server.

    It counts as pending until the outcome is there, so that it stays cancellable.
    """

    def __init__(self, spawn: Callable[[Coroutine[Any, Any, None]], None]) -> None:
        super().__init__()
        self._submitted: SubmittedTask[T] | None = None
        self._spawn = spawn
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
            self._spawn(_cancel_quietly(self._submitted))
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


async def _cancel_quietly(task: SubmittedTask[Any] | MapRun[Any]) -> None:
    """Tell the server; nobody waits for the answer."""
    await asyncio.wait({asyncio.ensure_future(task.cancel())})


class Executor(concurrent.futures.Executor):
    """Run ``fn(*args, **kwargs)`` on volunteers' computers.

    The function's exception is raised by ``future.result()`` as a `UserError` that also
    is the builtin exception it was; a missing quorum raises `SystemError`.

    Args:
        connection: a `SyncConnection`, or what `stoilo.connect_sync` takes; a connection
            made here is closed after shutdown, when nothing is pending any more.
        redundancy_options: for every task.
        flavor: for every task.
        level: for every task.
        limits: for every task.
        initializer: refused; it is here to say why.

    Raises:
        UsageError: ``STO-C042`` for an initializer.
    """

    def __init__(
        self,
        connection: SyncConnection | Where = None,
        *,
        redundancy_options: Redundancy | None = None,
        flavor: str | None = None,
        level: str | None = None,
        limits: TaskLimits | None = None,
        initializer: Callable[..., object] | None = None,
    ) -> None:
        if initializer is not None:
            raise UsageError(
                "STO-C042",
                "initializer= has no place here: each task starts in a process of its "
                "own, on a computer that kept nothing from the last one",
                hint="call it at the start of the function, or pass what it makes",
            )
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
        self._work: set[concurrent.futures.Future[None]] = set()

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
        future: TaskFuture[T] = TaskFuture(self._spawn)
        staged: StagedTask[T] = StagedTask(session, captured, self._options)
        self._begin([future], _follow(staged, future))
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
            timeout: s from now, for the whole map; then `TimeoutError`.
            chunksize: calls a task; 1 lets measured cost decide.
        """
        end = None if timeout is None else time.monotonic() + timeout
        calls = [
            {"args": list(args), "kwargs": {}} for args in zip(*iterables, strict=False)
        ]
        return _in_order(self.map_calls(fn, calls, chunksize), end)

    def map_calls(
        self,
        fn: Callable[..., T],
        calls: list[dict[str, Any]],
        chunksize: int = 1,
        *,
        spread: bool = True,
    ) -> list[TaskFuture[T]]:
        """Send many calls of `fn` in few tasks; return one future a call.

        Args:
            fn: as for `submit`.
            calls: one ``{"args": [...], "kwargs": {...}}`` a call; without `spread` the one
                dict that `fn` takes, whose large values many calls share.
            chunksize: as for `map`.
            spread: whether `fn` is called with ``*args, **kwargs``.

        Raises:
            UsageError: ``STO-C…`` when something cannot travel.
            RuntimeError: after `shutdown`.
        """
        session = self._connection._core.session  # noqa: SLF001 - one package
        captured = session.captures.calls(fn, calls, spread=spread) if calls else None
        chunk = chunksize if chunksize > 1 else None
        run: MapRun[T] = MapRun(session, captured, self._options, chunk)
        futures: list[TaskFuture[T]] = [TaskFuture(self._spawn) for _ in calls]
        waiting = set(futures)

        def note_end(future: concurrent.futures.Future[T]) -> None:
            waiting.discard(cast("TaskFuture[T]", future))
            if not waiting and future.cancelled():
                self._spawn(_cancel_quietly(run))

        for future in futures:
            future.add_done_callback(note_end)
        self._begin(futures, _follow_map(run, futures))
        return futures

    def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:
        """Take no more work; see `concurrent.futures.Executor.shutdown`."""
        with self._lock:
            self._open = False
            pending = list(self._futures)
        if cancel_futures:
            for future in pending:
                future.cancel()
        work = asyncio.run_coroutine_threadsafe(
            self._wind_up(pending), background.loop()
        )
        if wait:
            work.result()

    def _begin(
        self, futures: Sequence[TaskFuture[Any]], work: Coroutine[Any, Any, None]
    ) -> None:
        """Start `work`, which ends the futures, unless the executor takes no more."""
        with self._lock:
            if not self._open:
                work.close()
                raise RuntimeError("cannot schedule new futures after shutdown")
            self._futures.update(futures)
        for future in futures:
            future.add_done_callback(self._futures.discard)
        self._spawn(work)

    def _spawn(self, work: Coroutine[Any, Any, None]) -> None:
        """Run something in the background; an owned connection is closed after it."""
        running = asyncio.run_coroutine_threadsafe(work, background.loop())
        self._work.add(running)
        running.add_done_callback(self._work.discard)

    async def _wind_up(self, pending: Sequence[TaskFuture[Any]]) -> None:
        """Wait for outcomes and callbacks, and until the server knows what was cancelled.

        Then an owned connection is closed.
        """
        if pending:
            await asyncio.wait(map(asyncio.wrap_future, pending))
        if left := [asyncio.wrap_future(work) for work in list(self._work)]:
            await asyncio.wait(left, timeout=GOODBYE_S)
        if self._owned:
            core = self._connection._core  # noqa: SLF001 - one package
            await core.close()


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


async def _follow_map(run: MapRun[Any], futures: list[TaskFuture[Any]]) -> None:
    """Carry each call's outcome into its future; an error of the map ends them all."""
    try:
        async for item in run:
            futures[item.index].end(item.result)
    except Exception as error:  # noqa: BLE001 - same
        for future in futures:
            future.end(error)


def _in_order(futures: Iterable[TaskFuture[T]], end: float | None) -> Iterator[T]:
    """Yield results in order, each once it is there, and raise the first error."""
    waiting = deque(futures)
    try:
        while waiting:
            left = None if end is None else max(0.0, end - time.monotonic())
            waiting[0].exception(left)  # only waits: it stays to be cancelled
            yield waiting.popleft().result()
    finally:
        for future in waiting:
            future.cancel()
