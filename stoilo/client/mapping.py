"""`Connection.map`: many small calls in few tasks, sized by what they cost (`chunks`).

Items have their own outcomes: those without a quorum are sent once more, by themselves,
and only those. A task that `map` made too large for a limit is sent again in halves.
"""

from __future__ import annotations

import asyncio
import functools
import math
import time
import uuid
from collections import deque
from collections.abc import AsyncIterator, Generator
from dataclasses import dataclass
from itertools import islice
from typing import Any, Generic

from stoilo.client.capture import Captured, CapturedCalls
from stoilo.client.chunks import WINDOW, ChunkCost, ChunkSizer, computing_budget_s
from stoilo.client.request import TaskOptions
from stoilo.client.results import ResultT, TaskOutcome, TimedOut
from stoilo.client.results import SystemError as TaskSystemError
from stoilo.client.session import Session
from stoilo.client.task import SubmittedTask, submit
from stoilo.core.errors import PolicyRefusal, UnreachableError, UsageError
from stoilo.core.limits import BOUNDS
from stoilo.core.rate_limit import Backoff
from stoilo.core.rpc import tasks_pb2 as pb

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

LIMITS_HIT = frozenset({"STO-S011", "STO-S012", "STO-S013", "STO-S014", "STO-S015"})
"""Ends of a whole task that fewer items in it may change."""

TOO_LARGE = "STO-C020"
SUCCESS = "success"

WAITED_OUT = frozenset({"STO-R004", "STO-R005"})
"""Quota refusals that pass with time: too many unfinished tasks, too many an hour."""

QUOTA = functools.partial(Backoff, 0.5, 60.0, factor=1.6, jitter=0.2)
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


@dataclass(frozen=True, slots=True)
class _Chunk:
    """Items that travel together, and their task; `is_first`: none was sent before."""

    indices: list[int]
    captured: Captured
    is_first: bool = False


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
        limits = options.limits
        budget = computing_budget_s(options.redundancy, limits.cpu_s, limits.wall_s)
        self._sizer = ChunkSizer(chunk_items, budget)
        total = len(captured.calls) if captured else 0
        self._waiting = deque(range(total))
        self._again: deque[int] = deque()
        self._halves: deque[_Chunk] = deque()
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

    @property
    def _is_left(self) -> bool:
        """Whether something is to be sent."""
        return bool(self._waiting or self._again or self._halves)

    async def _drive(self) -> None:
        running: set[asyncio.Task[None]] = set()
        try:
            while self._is_left or running:
                while self._is_left and len(running) < WINDOW:
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

    def _take(self) -> _Chunk:
        """Return the next items and their task, of a size and of bytes that fit."""
        if self._halves:
            return self._halves.popleft()
        source = self._again or self._waiting
        count = min(self._sizer.next_size(len(source)), len(source))
        while True:
            indices = list(islice(source, count))
            packed, size = self._pack(indices)
            fitting = self._sizer.fitting(count, size) if count > 1 else count
            if packed is not None and fitting == count:
                break
            count = min(fitting, count - 1)
        for _ in indices:
            source.popleft()
        return _Chunk(indices, packed, is_first=source is self._waiting)

    def _pack(self, indices: list[int]) -> tuple[Captured | None, int]:
        """Return the task of some items and its bytes; None: too many for one."""
        assert self._captured is not None  # noqa: S101 - there are items
        try:
            packed = self._captured.pack_items(indices)
        except UsageError as error:
            if error.code != TOO_LARGE or len(indices) == 1 or self._sizer.fixed:
                raise
            return None, 2 * BOUNDS.inline_arguments_bytes
        return packed, len(packed.arguments)

    async def _run_chunk(self, chunk: _Chunk) -> None:
        indices = chunk.indices
        task = await self._submit(chunk.captured)
        began = time.monotonic()
        self._tasks.append(task)
        self._sent += len(indices) if chunk.is_first else 0
        answer = await task.wait()
        assert answer is not None  # noqa: S101 - no timeout was given
        if self._is_too_much(indices, answer):
            self._halve(indices)
            return
        cost = ChunkCost(
            len(indices),
            trip_s=time.monotonic() - began,
            claimed_s=_claimed_s(answer),
            sent_bytes=len(chunk.captured.arguments),
            answer_bytes=answer.ByteSize(),
        )
        if answer.items:  # else it ended by a deadline, or was never computed
            self._sizer.note(cost)
        outcomes = await task.item_results(len(indices))
        for index, outcome in zip(indices, outcomes, strict=True):
            self._settle(index, outcome)

    def _is_too_much(self, indices: list[int], answer: pb.PollTaskResponse) -> bool:
        """Whether a chunk that we made hit a limit as a whole."""
        ours = not self._sizer.fixed and len(indices) > 1
        return ours and not answer.items and answer.code in LIMITS_HIT

    def _halve(self, indices: list[int]) -> None:
        """Let both halves of a chunk be sent by themselves."""
        assert self._captured is not None  # noqa: S101 - there are items
        self._sizer.halve(len(indices))
        middle = len(indices) // 2
        for half in (indices[:middle], indices[middle:]):
            self._halves.append(_Chunk(half, self._captured.pack_items(half)))

    async def _submit(self, captured: Captured) -> SubmittedTask[ResultT]:
        """Submit one chunk; a quota that is used up is waited out.

        So is a server that is away, once it has taken a part of this map: whoever waits
        for the results has said how long.
        """
        key, backoff = uuid.uuid4().hex, QUOTA()
        while True:
            try:
                return await submit(self._session, captured, self._options, key)
            except PolicyRefusal as error:
                if error.code not in WAITED_OUT:
                    raise
            except UnreachableError:
                if not self._tasks:
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


def _claimed_s(answer: pb.PollTaskResponse) -> float:
    """Return the longest computing time that a good copy's host claims, s; 0: none.

    The longest: a host that says too little does not make chunks too large for others.
    """
    good = (copy.cpu_s for copy in answer.copies if copy.outcome == SUCCESS)
    return max((claim for claim in good if math.isfinite(claim)), default=0.0)
