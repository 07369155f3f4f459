"""`Connection.map`: many small calls in few tasks, sized by what they cost.

The first tasks are small; while a task comes back fast the next ones are larger, when
it takes long they shrink again. Items have their own outcomes: those without a quorum
are sent once more, by themselves, and only those.
"""

from __future__ import annotations

import asyncio
import time
import uuid
from collections import deque
from collections.abc import AsyncIterator, Generator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Generic

from stoilo.client.backoff import Backoff, Pauses
from stoilo.client.results import ResultT, TaskOutcome, TimedOut
from stoilo.client.results import SystemError as TaskSystemError
from stoilo.core.errors import PolicyRefusal
from stoilo.core.limits import BOUNDS

if TYPE_CHECKING:
    from stoilo.client.capture import Captured, CapturedCalls
    from stoilo.client.request import TaskOptions
    from stoilo.client.session import Session
    from stoilo.client.task import SubmittedTask

__all__ = ["ChunkSizer", "MapItem", "MapProgress", "MapRun"]

FIRST_ITEMS = 8
TARGET_S = 8.0
"""Wanted time from submission to result of one chunk, s."""

WINDOW = 6
"""Chunks in flight."""

SENT_AGAIN = frozenset(
    {
        *("STO-R050", "STO-R051", "STO-R052", "STO-R058", "STO-C063"),
        *("STO-R080", "STO-R081"),
        *("STO-E020", "STO-E021", "STO-E022", "STO-E023"),
    }
)
"""Item outcomes that another try may change: copies failed or did not agree, hosts were
silent or wrote nonsense. A validator that raised or rejected, or a limit that was hit,
would only be so again."""

WAITED_OUT = frozenset({"STO-R004", "STO-R005"})
"""Quota refusals that pass with time: too many unfinished tasks, too many an hour."""

QUOTA = Pauses(0.5, 1.6, 60.0)
"""Between submissions that a quota refuses."""


@dataclass(frozen=True, slots=True)
class MapItem(Generic[ResultT]):
    """One finished item: its place in the input and its outcome."""

    index: int
    result: TaskOutcome[ResultT]


@dataclass(frozen=True, slots=True)
class MapProgress:
    """Counts of items: all, sent at least once, finished, and tasks used."""

    total: int
    sent: int
    done: int
    tasks: int


class ChunkSizer:
    """How many items the next task gets. Pure; times come from outside."""

    def __init__(self, fixed: int | None = None) -> None:
        self.fixed = fixed
        self.size = fixed or FIRST_ITEMS

    def next_size(self, waiting: int) -> int:
        """Return the next chunk's size with `waiting` items left, at least 1."""
        if self.fixed:
            return max(1, min(self.fixed, waiting, BOUNDS.map_items))
        fair = -(-waiting // WINDOW)
        return max(1, min(self.size, max(fair, FIRST_ITEMS), BOUNDS.map_items))

    def note(self, items: int, took_s: float) -> None:
        """Learn from a finished chunk: `items` calls came back after `took_s`."""
        if self.fixed:
            return
        if took_s < TARGET_S / 2:
            self.size = min(max(self.size, 2 * items), BOUNDS.map_items)
        elif took_s > 2 * TARGET_S:
            self.size = max(1, min(self.size, int(items * TARGET_S / took_s)))


class MapRun(Generic[ResultT]):
    """A running map. Await it for all results, or ``async for`` over finished items."""

    def __init__(
        self,
        session: Session,
        captured: CapturedCalls | None,
        options: TaskOptions,
        chunk_items: int | None,
    ) -> None:
        self._session = session
        self._captured = captured
        self._options = options
        self._sizer = ChunkSizer(chunk_items)
        total = len(captured.calls) if captured else 0
        self._waiting = deque(range(total))
        self._again: deque[int] = deque()
        self._retried: set[int] = set()
        self._results: dict[int, TaskOutcome[ResultT]] = {}
        self._finished: asyncio.Queue[MapItem[ResultT] | BaseException | None] = (
            asyncio.Queue()
        )
        self._driver: asyncio.Task[None] | None = None
        self._tasks: list[SubmittedTask[ResultT]] = []
        self._sent = 0

    @property
    def source(self) -> str:
        """The task module's exact text; empty without items."""
        return self._captured.task_module if self._captured else ""

    @property
    def progress(self) -> MapProgress:
        """Counts so far."""
        total = len(self._captured.calls) if self._captured else 0
        return MapProgress(total, self._sent, len(self._results), len(self._tasks))

    @property
    def task_ids(self) -> list[str]:
        """Ids of the tasks submitted so far."""
        return [task.task_id for task in self._tasks]

    def __await__(self) -> Generator[Any, None, list[TaskOutcome[ResultT]]]:
        """Wait for every item; results in the order of the items."""
        return self.results().__await__()

    async def results(self, timeout: float | None = None) -> list[TaskOutcome[ResultT]]:  # noqa: ASYNC109 - the futures' word
        """Return all results in order; unfinished ones are `TimedOut` after `timeout` s."""
        began = time.monotonic()
        driver = self._start()
        await asyncio.wait({driver}, timeout=timeout)
        if driver.done():
            driver.result()
        total = self.progress.total
        late = TimedOut(", ".join(self.task_ids), time.monotonic() - began)
        return [self._results.get(index, late) for index in range(total)]

    async def __aiter__(self) -> AsyncIterator[MapItem[ResultT]]:
        """Yield items as they finish, in any order."""
        self._start()
        while (entry := await self._finished.get()) is not None:
            if isinstance(entry, BaseException):
                raise entry
            yield entry

    async def cancel(self) -> None:
        """Stop submitting and cancel what was sent; finished items stay."""
        if self._driver is not None:
            self._driver.cancel()
            await asyncio.wait({self._driver})
        await asyncio.gather(*(task.cancel() for task in self._tasks))

    def _start(self) -> asyncio.Task[None]:
        if self._driver is None:
            self._driver = asyncio.ensure_future(self._drive())
        return self._driver

    async def _drive(self) -> None:
        running: set[asyncio.Task[None]] = set()
        try:
            while self._waiting or self._again or running:
                while (self._waiting or self._again) and len(running) < WINDOW:
                    running.add(asyncio.ensure_future(self._run_chunk(self._take())))
                done, running = await asyncio.wait(
                    running, return_when=asyncio.FIRST_COMPLETED
                )
                for chunk in done:
                    chunk.result()
        except BaseException as error:
            for chunk in running:
                chunk.cancel()
            self._finished.put_nowait(error)
            raise
        self._finished.put_nowait(None)

    def _take(self) -> list[int]:
        source = self._again or self._waiting
        count = min(self._sizer.next_size(len(source)), len(source))
        return [source.popleft() for _ in range(count)]

    async def _run_chunk(self, indices: list[int]) -> None:
        assert self._captured is not None  # noqa: S101 - there are items
        task = await self._submit(self._captured.pack_items(indices))
        began = time.monotonic()
        self._tasks.append(task)
        self._sent += len([index for index in indices if index not in self._retried])
        outcomes = await task.item_results(len(indices))
        self._sizer.note(len(indices), time.monotonic() - began)
        for index, outcome in zip(indices, outcomes, strict=True):
            self._settle(index, outcome)

    async def _submit(self, captured: Captured) -> SubmittedTask[ResultT]:
        """Submit one chunk; a quota that is used up is waited out."""
        key, backoff = uuid.uuid4().hex, Backoff(QUOTA)
        while True:
            try:
                return await self._session.submit(captured, self._options, key)
            except PolicyRefusal as error:
                if error.code not in WAITED_OUT:
                    raise
            await asyncio.sleep(backoff.next_pause())

    def _settle(self, index: int, outcome: TaskOutcome[ResultT]) -> None:
        lost = isinstance(outcome, TaskSystemError) and outcome.code in SENT_AGAIN
        if lost and index not in self._retried:
            self._retried.add(index)
            self._again.append(index)
            return
        self._results[index] = outcome
        self._finished.put_nowait(MapItem(index, outcome))
