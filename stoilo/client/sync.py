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
from typing import Any, Concatenate, Generic, ParamSpec, Self, TypeVar, cast

from stoilo.client.chunks import MapProgress
from stoilo.client.connection import CONNECT_S, Connection, Where, connect
from stoilo.client.mapping import MapItem, MapRun
from stoilo.client.results import ResultT
from stoilo.client.session import PATIENCE_S, Journal, Review
from stoilo.client.status import TaskStatus
from stoilo.client.task import StagedTask, SubmittedTask
from stoilo.core.background import EventLoopThread
from stoilo.core.errors import StoiloError

P = ParamSpec("P")
CoreT = TypeVar("CoreT")
MadeT = TypeVar("MadeT")
GivenT = TypeVar("GivenT")

background = EventLoopThread("stoilo-client")


def _run(work: Coroutine[Any, Any, GivenT]) -> GivenT:
    """Wait for `work`; our errors show the caller's frames, not the two loops'."""
    try:
        return background.run(work)
    except StoiloError as error:
        raise error.with_traceback(None) from error.__cause__


class AsCompleted:
    """What ends, as it ends: ``async for`` or, for the sync face, ``for``.

    A task comes once, when it is final; of a map come its items (`MapItem`). `len()` says
    how many there will be.
    """

    def __init__(self, tasks: Iterable[Any], timeout: float | None) -> None:
        self._tasks = list(tasks)
        self._timeout = timeout

    def add(self, *tasks: Any) -> None:  # noqa: ANN401 - as in `as_completed`
        """Take more tasks or maps, also while the iteration goes on."""
        self._tasks += tasks

    def __len__(self) -> int:
        """Return how many tasks and items there are, finished or not."""
        return sum(len(one) if hasattr(one, "__len__") else 1 for one in self._tasks)

    async def __aiter__(self) -> AsyncIterator[SubmittedTask[Any] | MapItem[Any]]:
        """Yield each task once it is final; stops early when the time is over."""
        taken, waits = 0, dict[asyncio.Future[Any], AsyncIterator[Any]]()
        end = None if self._timeout is None else time.monotonic() + self._timeout
        try:
            while waits or taken < len(self._tasks):
                for one in self._tasks[taken:]:
                    source = _ends_of(one)
                    waits[asyncio.ensure_future(_next(source))] = source
                taken = len(self._tasks)
                left = None if end is None else max(0.0, end - time.monotonic())
                done, _ = await asyncio.wait(
                    waits, timeout=left, return_when=asyncio.FIRST_COMPLETED
                )
                if not done:
                    return
                for finished in done:
                    source = waits.pop(finished)
                    if (found := finished.result()) is not None:
                        waits[asyncio.ensure_future(_next(source))] = source
                        yield found
        finally:
            for wait in waits:
                wait.cancel()

    def __iter__(self) -> Iterator[SyncSubmittedTask[Any] | MapItem[Any]]:
        """Yield tasks of the synchronous face, and items."""
        for found in _iterate(self):
            yield found if isinstance(found, MapItem) else SyncSubmittedTask(found)


def as_completed(tasks: Iterable[Any], timeout: float | None = None) -> AsCompleted:
    """Return tasks, and items of maps, in the order in which they finish.

    Args:
        tasks: staged (they are submitted) or submitted tasks and maps of one face; `add`
            takes more while the iteration goes on.
        timeout: s; the iteration ends then, unfinished tasks are left out. None waits.
    """
    return AsCompleted(tasks, timeout)


async def _ends_of(one: object) -> AsyncIterator[SubmittedTask[Any] | MapItem[Any]]:
    core = one._core if isinstance(one, _Face) else one  # noqa: SLF001 - same face
    if isinstance(core, MapRun):
        async for item in core:
            yield item
    else:
        yield await _finish(cast("StagedTask[Any] | SubmittedTask[Any]", core))


async def _next(source: AsyncIterator[GivenT]) -> GivenT | None:
    return await anext(source, None)


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

    while found := _run(next_item()):
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
        return _run(method(self._core, *args, **kwargs))

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
    def page(self) -> str:
        """Address of its page in the console; empty where it is not known."""
        return self._core.page

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
        return SyncSubmittedTask(_run(self._core.submit()))

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
    def page(self) -> str:
        """Address of its label's page in the console; empty where it is not known."""
        return self._core.page

    @property
    def progress(self) -> MapProgress:
        """Counts so far."""
        return self._core.progress

    @property
    def task_ids(self) -> list[str]:
        """Ids of the tasks submitted so far."""
        return self._core.task_ids

    def __len__(self) -> int:
        """Return how many items there are."""
        return len(self._core)

    results = _waits(MapRun[ResultT].results)
    to_columns = _waits(MapRun[ResultT].to_columns)
    to_pandas = _waits(MapRun[ResultT].to_pandas)
    to_polars = _waits(MapRun[ResultT].to_polars)
    cancel = _waits(MapRun[ResultT].cancel)
    _repr_html_ = _makes(_same, MapRun[ResultT]._repr_html_)

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
    restore_map = _makes(SyncMapRun, Connection.restore_map)
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

    return SyncConnection(_run(work()))
