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
from dataclasses import dataclass, replace
from itertools import islice
from typing import Any, Generic

from stoilo.client.capture import Captured, CapturedCalls
from stoilo.client.chunks import (
    WINDOW,
    ChunkCost,
    ChunkSizer,
    MapProgress,
    MapRecord,
    computing_budget_s,
)
from stoilo.client.options import TaskOptions
from stoilo.client.results import (
    ResultT,
    TaskOutcome,
    TimedOut,
    as_columns,
    load_frames,
)
from stoilo.client.results import SystemError as TaskSystemError
from stoilo.client.session import Session, at_the_caller
from stoilo.client.status import progress_html, show_progress
from stoilo.client.task import SubmittedTask, submit
from stoilo.core.errors import (
    StoiloError,
    UnreachableError,
    UsageError,
)
from stoilo.core.rate_limit import Backoff
from stoilo.core.rpc import tasks_pb2 as pb
from stoilo.core.types import BOUNDS, name_of_label

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
KEY_TAKEN = "STO-R011"
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
class _Chunk:
    """Items that travel together."""

    indices: list[int]
    captured: Captured | None  # their task; None: not packed, or the server has it
    is_first: bool = False  # whether none was sent before
    again: bool = False  # whether all were, and came to nothing
    number: int | None = None  # in the map's record; None: not noted yet


class MapRun(Generic[ResultT]):
    """A running map. Await it for all results, or ``async for`` over finished items."""

    def __init__(
        self,
        session: Session,
        captured: CapturedCalls | None,
        options: TaskOptions,
        chunk_items: int | None,
        record: MapRecord | None = None,
    ) -> None:
        self._session = session
        self._captured = captured
        self._options = options
        limits = options.limits
        budget = computing_budget_s(options.redundancy, limits.cpu_s, limits.wall_s)
        self._sizer = ChunkSizer(chunk_items, budget)
        self._record = record
        self._total = len(captured.calls) if captured else record.total if record else 0
        self._homes = record.homes() if record else {}
        unsent = (one for one in range(self._total) if one not in self._homes)
        self._waiting, self._again = deque(unsent), deque[int]()
        self._halves: deque[_Chunk] = deque()
        self._retried: set[int] = set()
        self._results: dict[int, TaskOutcome[ResultT]] = {}
        self._finished: asyncio.Queue[MapItem[ResultT] | BaseException | None] = (
            asyncio.Queue()
        )
        self._driver: asyncio.Task[None] | None = None
        self._tasks: list[SubmittedTask[ResultT]] = []
        self._sent = len(self._homes)
        if record is not None:
            self._take_up(record)

    def _take_up(self, record: MapRecord) -> None:
        """Put what an earlier process sent before all else: its tasks are sent again.

        The same chunk under the same key is the same task, so the server says its id.
        Without the function, what has no known task is left to whoever has it.
        """
        for number, sent in record.chunks.items():
            self._retried.update(sent.items if sent.again else ())
            here = [item for item in sent.items if self._homes[item] == number]
            if not sent.task_id and self._captured is None:
                self._waiting.extend(here)
            elif here:
                self._halves.append(_Chunk(sent.items, None, number=number))
        while self._waiting and self._captured is None:
            item, unsent = self._waiting.popleft(), "map() with this key sends it"
            lost = TaskSystemError("STO-C042", f"item {item} was not sent; {unsent}")
            self._settle(item, lost)

    @property
    def source(self) -> str:
        """The task module's exact text; empty without items."""
        return self._captured.task_module if self._captured else ""

    @property
    def progress(self) -> MapProgress:
        """Counts so far."""
        done, tasks = len(self._results), len(self._tasks)
        return MapProgress(len(self), self._sent, done, tasks)

    @property
    def page(self) -> str:
        """Address of its label's page in the server's console; empty where unknown."""
        label = name_of_label(self._options.label)
        return self._session.wire.address.page_of("label", label)

    @property
    def task_ids(self) -> list[str]:
        """Ids of the tasks submitted so far."""
        return [task.task_id for task in self._tasks]

    def __await__(self) -> Generator[Any, None, list[TaskOutcome[ResultT]]]:
        """Wait for every item; results in the order of the items."""
        return self.results().__await__()

    @at_the_caller
    async def results(
        self,
        timeout: float | None = None,  # noqa: ASYNC109 - the futures' word
        *,
        progress: bool = False,
    ) -> list[TaskOutcome[ResultT]]:
        """Return all results in order; unfinished ones are `TimedOut` after `timeout` s.

        With `progress` a bar is drawn meanwhile, in a notebook or on standard error.
        """
        began = time.monotonic()
        driver = self._start()
        drawing = {asyncio.ensure_future(show_progress(self))} if progress else set()
        try:
            await asyncio.wait({driver}, timeout=timeout)
        finally:
            for one in drawing:
                one.cancel()
                await asyncio.wait({one})
        if driver.done():
            driver.result()
        late = TimedOut(", ".join(self.task_ids), time.monotonic() - began)
        return [self._results.get(index, late) for index in range(len(self))]

    async def to_columns(self) -> dict[str, list[Any]]:
        """Wait for every item and return columns; see `results.as_columns`."""
        return as_columns(await self.results())

    async def to_pandas(self) -> Any:  # noqa: ANN401 - pandas is not needed to import us
        """Return `to_columns` as a ``pandas.DataFrame``; raises ``STO-U002``."""
        frames = load_frames("pandas")
        return frames.DataFrame(await self.to_columns())

    async def to_polars(self) -> Any:  # noqa: ANN401 - nor is polars
        """Return `to_columns` as a ``polars.DataFrame``; raises ``STO-U002``."""
        frames = load_frames("polars")
        return frames.DataFrame(await self.to_columns())

    def __len__(self) -> int:
        """Return how many items there are; progress bars ask."""
        return self._total

    def __repr__(self) -> str:
        """Return the counts so far."""
        return f"<MapRun {self.progress}>"

    def _repr_html_(self) -> str:
        """Return a bar, for notebooks, with a link to the console's page of its label."""
        return progress_html(self.progress, self.page)

    async def __aiter__(self) -> AsyncIterator[MapItem[ResultT]]:
        """Yield items as they finish, in any order, each once."""
        self._start()
        while (entry := await self._finished.get()) is not None:
            if isinstance(entry, BaseException):
                raise entry
            yield entry
        self._finished.put_nowait(None)  # for whoever iterates again

    async def cancel(self) -> None:
        """Stop submitting and cancel what was sent; finished items stay."""
        if self._driver is not None:
            self._driver.cancel()
            await asyncio.wait({self._driver})
        await asyncio.gather(*(task.cancel() for task in self._tasks))

    def _start(self) -> asyncio.Task[None]:
        if self._driver is None:
            self._driver = asyncio.ensure_future(self._drive())
            # Whoever iterates gets its error from the queue: asyncio need not log it too.
            self._driver.add_done_callback(
                lambda end: end.cancelled() or end.exception()
            )
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
            half = self._halves.popleft()
            if half.captured is None and self._captured is not None:
                half = replace(half, captured=self._captured.pack_items(half.indices))
            return half
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
        is_first = source is self._waiting
        return _Chunk(indices, packed, is_first=is_first, again=not is_first)

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
        chunk, indices = self._note(chunk), chunk.indices
        task = await self._submit(chunk)
        began = time.monotonic()
        self._tasks.append(task)
        self._sent += len(indices) if chunk.is_first else 0
        answer = await task.wait()
        assert answer is not None  # noqa: S101 - no timeout was given
        if self._is_too_much(indices, answer):
            self._halve([index for index in indices if self._counts(chunk, index)])
            return
        cost = ChunkCost(
            len(indices),
            trip_s=time.monotonic() - began,
            claimed_s=_claimed_s(answer),
            sent_bytes=len(chunk.captured.arguments) if chunk.captured else 0,
            answer_bytes=answer.ByteSize(),
        )
        if answer.items:  # else it ended by a deadline, or was never computed
            self._sizer.note(cost)
        outcomes = await task.item_results(len(indices))
        for index, outcome in zip(indices, outcomes, strict=True):
            if self._counts(chunk, index):
                self._settle(index, outcome)

    def _is_too_much(self, indices: list[int], answer: pb.PollTaskResponse) -> bool:
        """Whether a chunk that we made hit a limit as a whole."""
        ours = self._captured and not self._sizer.fixed and len(indices) > 1
        return bool(ours) and not answer.items and answer.code in LIMITS_HIT

    def _halve(self, indices: list[int]) -> None:
        """Let both halves of a chunk be sent by themselves."""
        assert self._captured is not None  # noqa: S101 - there are items
        self._sizer.halve(len(indices))
        middle = len(indices) // 2
        for half in filter(None, (indices[:middle], indices[middle:])):
            self._halves.append(_Chunk(half, self._captured.pack_items(half)))

    async def _submit(self, chunk: _Chunk) -> SubmittedTask[ResultT]:
        """Submit one chunk; a quota that is used up is waited out.

        So is a server that is away, once it has taken a part of this map: whoever waits
        for the results has said how long.
        """
        record, number = self._record, chunk.number
        if record is None or number is None:
            assert chunk.captured is not None  # noqa: S101 - it was never sent
            return await self._send(chunk.captured, uuid.uuid4().hex)
        if chunk.captured is None:
            return SubmittedTask(self._session, record.chunks[number].task_id)
        task = await self._send(chunk.captured, f"{record.key}.{number}")
        record.note_task(number, task.task_id)
        return task

    def _note(self, chunk: _Chunk) -> _Chunk:
        """Return the chunk with its place in the record, where there is one."""
        if self._record is None or chunk.number is not None:
            return chunk
        number = self._record.add(chunk.indices, again=chunk.again)
        self._homes.update(dict.fromkeys(chunk.indices, number))
        return replace(chunk, number=number)

    def _counts(self, chunk: _Chunk, index: int) -> bool:
        """Whether the chunk has the item's outcome, and no later one."""
        return self._homes.get(index, chunk.number) == chunk.number

    async def _send(self, captured: Captured, key: str) -> SubmittedTask[ResultT]:
        backoff = QUOTA()
        while True:
            try:
                return await submit(self._session, captured, self._options, key)
            except UnreachableError:
                if not self._tasks:
                    raise
            except StoiloError as error:
                if error.code == KEY_TAKEN and self._record is not None:
                    why = "its function, items or options were others"
                    raise self._record.other_map(why) from None
                if error.code not in WAITED_OUT:
                    raise
            await asyncio.sleep(backoff.next_pause())

    def _settle(self, index: int, outcome: TaskOutcome[ResultT]) -> None:
        lost = isinstance(outcome, TaskSystemError) and outcome.code in SENT_AGAIN
        if lost and index not in self._retried and self._captured is not None:
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
