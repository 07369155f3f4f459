"""`Connection.map`: many small calls in few tasks, sized by what they cost to compute.

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
from typing import Any, Final, Generic

from stoilo.client.capture import Captured, CapturedCalls
from stoilo.client.options import TaskOptions
from stoilo.client.results import ResultT, TaskOutcome, TimedOut
from stoilo.client.results import SystemError as TaskSystemError
from stoilo.client.session import Session, at_the_caller
from stoilo.client.task import SubmittedTask, submit
from stoilo.core.errors import PolicyRefusal, UnreachableError, UsageError
from stoilo.core.rate_limit import Backoff
from stoilo.core.rpc import tasks_pb2 as pb
from stoilo.core.types import BOUNDS, Redundancy

FIRST_ITEMS: Final = 8
TARGET_S: Final = 8.0  # Wanted computing time of one chunk, s

# Items that compute for less are not divided among several hosts at the end: each would
# wait longer than that
WORTH_S: Final = 2.0

WINDOW: Final = 6  # Chunks in flight

GROWTH: Final = 64  # A chunk is at most so many times larger than one that came back

# Wanted at most in the arguments of a chunk, and in its answer, bytes
CHUNK_BYTES: Final = BOUNDS.inline_arguments_bytes // 2

# The least that a level allows a run which states no limits, s.
DEFAULT_CPU_S: Final = 60
DEFAULT_WALL_S: Final = 120

# Of the time that a host has for a copy: hosts are slower than others, and wait
DEADLINE_SHARE: Final = 0.1


@dataclass(frozen=True, slots=True)
class ChunkCost:
    """What one finished chunk took; the claims come from hosts."""

    items: int  # calls in it
    trip_s: float  # from submission to result, s
    # computing time of its copies as their hosts say, s; 0: unsaid
    claimed_s: float = 0.0
    sent_bytes: int = 0  # of its arguments
    answer_bytes: int = 0  # of its answer

    def computing_s(self, least_trip_s: float) -> float:
        """Return what the copies computed, never more than the trip, s."""
        if self.claimed_s > 0:
            return min(self.claimed_s, self.trip_s)
        return max(0.0, self.trip_s - least_trip_s)


def computing_budget_s(redundancy: Redundancy, cpu_s: int, wall_s: int) -> float:
    """Return how long a chunk may be expected to compute, s.

    Half of the tighter limit (0: the level's default), and a share of the deadline.
    """
    limit = min(cpu_s or DEFAULT_CPU_S, wall_s or DEFAULT_WALL_S)
    return min(limit / 2, redundancy.delay_bound_s * DEADLINE_SHARE)


class ChunkSizer:
    """How many items the next task gets.

    Args:
        fixed: items of every task, None to go by what they cost.
        budget_s: expected computing time that no chunk is to exceed, s.
    """

    def __init__(
        self, fixed: int | None = None, budget_s: float = DEFAULT_CPU_S / 2
    ) -> None:
        self.fixed = fixed
        self.size = fixed or FIRST_ITEMS
        self._budget_s = budget_s
        self._target_s = min(TARGET_S, budget_s)
        self._least_trip_s = float("inf")
        self._smallest: tuple[int, float] | None = None
        self._worth_sharing = FIRST_ITEMS

    def next_size(self, waiting: int) -> int:
        """Return the next chunk's size with `waiting` items left, at least 1."""
        if self.fixed:
            return max(1, min(self.fixed, waiting, BOUNDS.map_items))
        fair = max(-(-waiting // WINDOW), self._worth_sharing, FIRST_ITEMS)
        return max(1, min(self.size, fair, waiting, BOUNDS.map_items))

    def fitting(self, items: int, nbytes: int) -> int:
        """Return how many of `items` shall travel together that take `nbytes`."""
        if self.fixed or nbytes <= CHUNK_BYTES:
            return items
        self.size = max(1, min(items - 1, items * CHUNK_BYTES // nbytes))
        return self.size

    def halve(self, items: int) -> None:
        """Note that a chunk of `items` was too much for a limit."""
        if not self.fixed:
            self.size = max(1, min(self.size, items // 2))

    def note(self, cost: ChunkCost) -> None:
        """Learn from a finished chunk."""
        if self.fixed:
            return
        self._least_trip_s = min(self._least_trip_s, cost.trip_s)
        took = cost.computing_s(self._least_trip_s)
        factor = min(self._by_time(cost.items, took), _by_bytes(cost))
        size = max(1, min(int(cost.items * factor), BOUNDS.map_items))
        if took > 2 * self._target_s or factor < 1 / 2:
            self.size = min(self.size, size)
        else:
            self.size = max(self.size, size)

    def _by_time(self, items: int, took: float) -> float:
        """Return how many times more (or less) items would take the wanted time."""
        if took > 2 * self._target_s:
            return self._target_s / took
        growing = self._growing_part(items, took)
        worth = WORTH_S * items / growing if growing else BOUNDS.map_items
        self._worth_sharing = int(min(worth, BOUNDS.map_items))
        wanted = self._target_s / growing if growing else GROWTH
        allowed = self._budget_s / took if took else GROWTH
        return min(GROWTH, max(1.0, min(wanted, allowed)))

    def _growing_part(self, items: int, took: float) -> float:
        """Return what of `took` grows with the items, s: a start costs as much alone.

        Seen by a chunk of another size; without one, all of it.
        """
        known = self._smallest
        if known is None or (items, took) < known:
            self._smallest = (items, took)
        if known is None or items < 2 * known[0]:
            return took
        return max(0.0, took - known[1]) * items / (items - known[0])


def _by_bytes(cost: ChunkCost) -> float:
    """Return how many times more (or less) items would take the wanted bytes."""
    most = max(cost.sent_bytes, cost.answer_bytes)
    return CHUNK_BYTES / most if most else float("inf")


# Item outcomes that another try may change: results failed or did not agree, hosts were
# silent or wrote nonsense. A validator that raised or rejected, or a limit that was
# hit, would only be so again.
SENT_AGAIN = frozenset(
    {
        *("STO-R050", "STO-R052", "STO-R081"),
        *("STO-E021", "STO-E022", "STO-E023"),
    }
)

# Ends of a whole task that fewer items in it may change
LIMITS_HIT = frozenset({"STO-S011", "STO-S013", "STO-S014"})

TOO_LARGE = "STO-C020"
SUCCESS = "success"

# Quota refusals that pass with time: too many unfinished tasks, too many an hour
WAITED_OUT = frozenset({"STO-R004", "STO-R005"})

# Between submissions that a quota refuses
QUOTA = functools.partial(Backoff, 0.5, 60.0, factor=1.6, jitter=0.2)


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

    @at_the_caller
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
