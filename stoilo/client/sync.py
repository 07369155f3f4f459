"""The synchronous face: the asynchronous core on one background event loop."""

from __future__ import annotations

import asyncio
import time
from collections.abc import (
    AsyncIterator,
    Callable,
    Iterable,
    Iterator,
    Mapping,
)
from typing import Any, Generic, Self

from stoilo.client.capture.stored import StoredValue
from stoilo.client.connection import CONNECT_S, Connection, TaskFunction, Where, connect
from stoilo.client.journal import Journal, JournalEntry
from stoilo.client.mapping import MapItem, MapProgress, MapRun
from stoilo.client.options import TaskLimits
from stoilo.client.results import ResultT, TaskOutcome
from stoilo.client.session import PATIENCE_S, Review
from stoilo.client.status import TaskStatus
from stoilo.client.task import StagedTask, SubmittedTask
from stoilo.core.background import EventLoopThread
from stoilo.core.types import Redundancy


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


background = EventLoopThread("stoilo-client")


class SyncSubmittedTask(Generic[ResultT]):
    """`SubmittedTask` whose methods wait."""

    def __init__(self, task: SubmittedTask[ResultT]) -> None:
        self._task = task

    @property
    def task_id(self) -> str:
        """The id to save and to pass to ``restore_task``."""
        return self._task.task_id

    @property
    def source(self) -> str:
        """The task module's exact text; empty for a restored task."""
        return self._task.source

    @property
    def known(self) -> TaskStatus | None:
        """What the server said last; see `SubmittedTask.known`."""
        return self._task.known

    def result(self, timeout: float | None = None) -> TaskOutcome[ResultT]:
        """Wait for the outcome; see `SubmittedTask.result`."""
        return background.run(self._task.result(timeout))

    def status(self) -> TaskStatus:
        """Ask the server where the task is."""
        return background.run(self._task.status())

    def done(self) -> bool:
        """Whether the task is final."""
        return background.run(self._task.done())

    def explain(self) -> str:
        """Return one sentence: why the task waits, or how it ended."""
        return background.run(self._task.explain())

    def cancel(self) -> bool:
        """Ask for cancellation; True when the task ended as cancelled."""
        return background.run(self._task.cancel())

    def reject(self, reason: str) -> bool:
        """Say that the value cannot be used; see `SubmittedTask.reject`."""
        return background.run(self._task.reject(reason))

    def __repr__(self) -> str:
        """Return the id and the last known state."""
        return repr(self._task).replace("<", "<Sync", 1)

    def _repr_html_(self) -> str:
        """Return a small static table."""
        return self._task._repr_html_()


class SyncStagedTask(Generic[ResultT]):
    """`StagedTask` whose methods wait."""

    def __init__(self, task: StagedTask[ResultT]) -> None:
        self._task = task

    @property
    def task_id(self) -> None:
        """None: the server assigns an id at submission."""
        return

    @property
    def source(self) -> str:
        """The task module's exact text, as it will be logged and run."""
        return self._task.source

    @property
    def validator_source(self) -> str:
        """The validator module's exact text; empty with the default validators."""
        return self._task.validator_source

    def submit(self) -> SyncSubmittedTask[ResultT]:
        """Send the task to the server; see `StagedTask.submit`."""
        return SyncSubmittedTask(background.run(self._task.submit()))

    def result(self, timeout: float | None = None) -> TaskOutcome[ResultT]:
        """Submit, then wait for the outcome."""
        return background.run(self._task.result(timeout))

    def __repr__(self) -> str:
        """Return the entry's name and sizes."""
        return repr(self._task).replace("<", "<Sync", 1)

    def _repr_html_(self) -> str:
        """Return the exact source, escaped."""
        return self._task._repr_html_()


class SyncMapRun(Generic[ResultT]):
    """`MapRun` whose methods wait; iterate for items as they finish."""

    def __init__(self, run: MapRun[ResultT]) -> None:
        self._run = run

    @property
    def source(self) -> str:
        """The task module's exact text; empty without items."""
        return self._run.source

    @property
    def progress(self) -> MapProgress:
        """Counts so far."""
        return self._run.progress

    @property
    def task_ids(self) -> list[str]:
        """Ids of the tasks submitted so far."""
        return self._run.task_ids

    def results(self, timeout: float | None = None) -> list[TaskOutcome[ResultT]]:
        """Return all results in the order of the items."""
        return background.run(self._run.results(timeout))

    def cancel(self) -> None:
        """Stop submitting and cancel what was sent."""
        background.run(self._run.cancel())

    def __iter__(self) -> Iterator[MapItem[ResultT]]:
        """Yield items as they finish, in any order."""
        items = aiter(self._run)

        async def next_item() -> MapItem[ResultT] | None:
            return await anext(items, None)

        while (item := background.run(next_item())) is not None:
            yield item


class SyncConnection:
    """`Connection` whose methods wait. Make one with ``stoilo.connect_sync(...)``."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection

    @property
    def target(self) -> str:
        """``host:port`` of the server."""
        return self._connection.target

    def create_task(
        self,
        func: TaskFunction[ResultT],
        kwargs: Mapping[str, Any] | None = None,
        init_valid_func: Callable[[Any], bool] | None = None,
        compare_valid_func: Callable[[Any, Any], bool] | None = None,
        redundancy_options: Redundancy | None = None,
        flavor: str | None = None,
        *,
        level: str | None = None,
        limits: TaskLimits | None = None,
        label: str = "",
        publish_source: bool = False,
        key: str | None = None,
    ) -> SyncStagedTask[ResultT]:
        """Capture a task; see `Connection.create_task`."""
        task = self._connection.create_task(
            func,
            kwargs,
            init_valid_func,
            compare_valid_func,
            redundancy_options,
            flavor,
            level=level,
            limits=limits,
            label=label,
            publish_source=publish_source,
            key=key,
        )
        return SyncStagedTask(task)

    def restore_task(self, task_id: str) -> SyncSubmittedTask[Any]:
        """Return a task submitted earlier."""
        return SyncSubmittedTask(self._connection.restore_task(task_id))

    def preview(
        self,
        func: TaskFunction[object],
        kwargs: Mapping[str, Any] | None = None,
        init_valid_func: Callable[[Any], bool] | None = None,
        compare_valid_func: Callable[[Any, Any], bool] | None = None,
    ) -> str:
        """Return the exact text that would be sent."""
        return self._connection.preview(
            func, kwargs, init_valid_func, compare_valid_func
        )

    def map(
        self,
        func: TaskFunction[ResultT],
        items: Iterable[Mapping[str, Any]],
        init_valid_func: Callable[[Any], bool] | None = None,
        compare_valid_func: Callable[[Any, Any], bool] | None = None,
        redundancy_options: Redundancy | None = None,
        flavor: str | None = None,
        *,
        level: str | None = None,
        limits: TaskLimits | None = None,
        label: str = "",
        publish_source: bool = False,
        chunk_items: int | None = None,
    ) -> SyncMapRun[ResultT]:
        """Run `func` once an item; see `Connection.map`."""
        run = self._connection.map(
            func,
            items,
            init_valid_func,
            compare_valid_func,
            redundancy_options,
            flavor,
            level=level,
            limits=limits,
            label=label,
            publish_source=publish_source,
            chunk_items=chunk_items,
        )
        return SyncMapRun(run)

    def put(self, value: object) -> StoredValue:
        """Upload a large value once; see `Connection.put`."""
        return background.run(self._connection.put(value))

    def recent_tasks(self, limit: int = 20) -> list[JournalEntry]:
        """Return tasks submitted from this account, newest first."""
        return self._connection.recent_tasks(limit)

    def close(self) -> None:
        """Close the connection; submitted tasks go on."""
        background.run(self._connection.close())

    def __enter__(self) -> Self:
        """Return the connection."""
        return self

    def __exit__(self, *exc_info: object) -> None:
        """Close it."""
        self.close()

    def __repr__(self) -> str:
        """Return the address."""
        return f"<stoilo.SyncConnection {self.target}>"


def connect_sync(
    where: Where = None,
    *,
    timeout: float = CONNECT_S,
    review: Review | None = None,
    journal: Journal | None = None,
    patience: float = PATIENCE_S,
) -> SyncConnection:
    """Connect to a server without ``await``; arguments as for `connect`."""

    async def work() -> Connection:
        return await connect(
            where, timeout=timeout, review=review, journal=journal, patience=patience
        )

    return SyncConnection(background.run(work()))


def iterate_completed(
    tasks: Iterable[SyncStagedTask[Any] | SyncSubmittedTask[Any]], timeout: float | None
) -> Iterator[SyncSubmittedTask[Any]]:
    """Yield synchronous tasks in the order in which they finish."""
    inner = aiter(AsCompleted([task._task for task in tasks], timeout))  # noqa: SLF001 - same face

    async def next_task() -> SubmittedTask[Any] | None:
        return await anext(inner, None)

    while (task := background.run(next_task())) is not None:
        yield SyncSubmittedTask(task)
