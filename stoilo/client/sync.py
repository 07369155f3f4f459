"""The synchronous face: the asynchronous core on one background event loop.

Each method is derived from the asynchronous one, signature and documentation included, so
that the two faces cannot drift apart.
"""

from __future__ import annotations

import asyncio
import functools
import time
from collections.abc import (
    AsyncIterable,
    AsyncIterator,
    Callable,
    Coroutine,
    Iterable,
    Iterator,
)
from typing import Any, Concatenate, Generic, ParamSpec, Self, TypeVar

from stoilo.client.connection import CONNECT_S, Connection, Where, connect
from stoilo.client.mapping import MapItem, MapProgress, MapRun
from stoilo.client.results import ResultT
from stoilo.client.session import PATIENCE_S, Journal, Review
from stoilo.client.status import TaskStatus
from stoilo.client.task import StagedTask, SubmittedTask
from stoilo.core.background import EventLoopThread

P = ParamSpec("P")
CoreT = TypeVar("CoreT")
MadeT = TypeVar("MadeT")
GivenT = TypeVar("GivenT")

background = EventLoopThread("stoilo-client")


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
        cores = [task._core for task in self._tasks]  # noqa: SLF001 - same face
        for task in _iterate(AsCompleted(cores, self._timeout)):
            yield SyncSubmittedTask(task)


def as_completed(tasks: Iterable[Any], timeout: float | None = None) -> AsCompleted:
    """Return the tasks in the order in which they finish.

    Args:
        tasks: staged (they are submitted) or submitted tasks of one face.
        timeout: s; the iteration ends then, unfinished tasks are left out. None waits.
    """
    return AsCompleted(tasks, timeout)


async def _finish(task: StagedTask[Any] | SubmittedTask[Any]) -> SubmittedTask[Any]:
    submitted = await task.submit() if isinstance(task, StagedTask) else task
    await submitted.wait()
    return submitted


def _iterate(items: AsyncIterable[GivenT]) -> Iterator[GivenT]:
    """Yield what the background loop gives."""
    inner = aiter(items)

    async def next_item() -> list[GivenT]:  # empty at the end: an item may be None
        try:
            return [await anext(inner)]
        except StopAsyncIteration:
            return []

    while found := background.run(next_item()):
        yield found[0]


class _Face(Generic[CoreT]):
    """What stands before an object of the asynchronous face."""

    def __init__(self, core: CoreT) -> None:
        self._core = core

    def __repr__(self) -> str:
        """Return the asynchronous object's text."""
        return repr(self._core).replace("<", "<Sync", 1)


def _waits(
    method: Callable[Concatenate[CoreT, P], Coroutine[Any, Any, GivenT]],
) -> Callable[Concatenate[_Face[CoreT], P], GivenT]:
    """Return `method` for callers who wait."""

    @functools.wraps(method)
    def call(self: _Face[CoreT], /, *args: P.args, **kwargs: P.kwargs) -> GivenT:
        return background.run(method(self._core, *args, **kwargs))

    return call


def _makes(
    face: Callable[[MadeT], GivenT], method: Callable[Concatenate[CoreT, P], MadeT]
) -> Callable[Concatenate[_Face[CoreT], P], GivenT]:
    """Return `method`, what it gives behind `face`."""

    @functools.wraps(method)
    def call(self: _Face[CoreT], /, *args: P.args, **kwargs: P.kwargs) -> GivenT:
        return face(method(self._core, *args, **kwargs))

    return call


def _same(made: GivenT) -> GivenT:
    return made


class SyncSubmittedTask(_Face[SubmittedTask[ResultT]], Generic[ResultT]):
    """`SubmittedTask` whose methods wait."""

    @property
    def task_id(self) -> str:
        """The id to save and to pass to ``restore_task``."""
        return self._core.task_id

    @property
    def source(self) -> str:
        """The task module's exact text; empty for a restored task."""
        return self._core.source

    @property
    def known(self) -> TaskStatus | None:
        """What the server said last; see `SubmittedTask.known`."""
        return self._core.known

    result = _waits(SubmittedTask[ResultT].result)
    stored = _waits(SubmittedTask[ResultT].stored)
    status = _waits(SubmittedTask[ResultT].status)
    done = _waits(SubmittedTask[ResultT].done)
    explain = _waits(SubmittedTask[ResultT].explain)
    cancel = _waits(SubmittedTask[ResultT].cancel)
    reject = _waits(SubmittedTask[ResultT].reject)
    _repr_html_ = _makes(_same, SubmittedTask[ResultT]._repr_html_)


class SyncStagedTask(_Face[StagedTask[ResultT]], Generic[ResultT]):
    """`StagedTask` whose methods wait."""

    @property
    def task_id(self) -> None:
        """None: the server assigns an id at submission."""
        return

    @property
    def source(self) -> str:
        """The task module's exact text, as it will be logged and run."""
        return self._core.source

    @property
    def validator_source(self) -> str:
        """The validator module's exact text; empty with the default validators."""
        return self._core.validator_source

    def submit(self) -> SyncSubmittedTask[ResultT]:
        """Send the task to the server; see `StagedTask.submit`."""
        return SyncSubmittedTask(background.run(self._core.submit()))

    check = _makes(_same, StagedTask[ResultT].check)
    result = _waits(StagedTask[ResultT].result)
    _repr_html_ = _makes(_same, StagedTask[ResultT]._repr_html_)


class SyncMapRun(_Face[MapRun[ResultT]], Generic[ResultT]):
    """`MapRun` whose methods wait; iterate for items as they finish."""

    @property
    def source(self) -> str:
        """The task module's exact text; empty without items."""
        return self._core.source

    @property
    def progress(self) -> MapProgress:
        """Counts so far."""
        return self._core.progress

    @property
    def task_ids(self) -> list[str]:
        """Ids of the tasks submitted so far."""
        return self._core.task_ids

    results = _waits(MapRun[ResultT].results)
    cancel = _waits(MapRun[ResultT].cancel)

    def __iter__(self) -> Iterator[MapItem[ResultT]]:
        """Yield items as they finish, in any order."""
        return _iterate(self._core)


class SyncConnection(_Face[Connection]):
    """`Connection` whose methods wait. Make one with ``stoilo.connect_sync(...)``."""

    @property
    def target(self) -> str:
        """``host:port`` of the server."""
        return self._core.target

    create_task = _makes(SyncStagedTask, Connection.create_task)
    restore_task = _makes(SyncSubmittedTask, Connection.restore_task)
    map = _makes(SyncMapRun, Connection.map)
    preview = _makes(_same, Connection.preview)
    check = _makes(_same, Connection.check)
    recent_tasks = _makes(_same, Connection.recent_tasks)
    list_tasks = _waits(Connection.list_tasks)
    put = _waits(Connection.put)
    close = _waits(Connection.close)

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
