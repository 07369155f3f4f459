"""The vector clock: how far workers may run ahead of each other (BSP, SSP, ASP).

A worker is a part of the data. Its clock is the number of iterations whose updates are
in; the server's time is the lowest clock of those that are alive. With limit ``s`` an
iteration may start when the time is at least ``clock - s``: ``s = 0`` is BSP (all wait for
all), ``None`` is ASP (nobody waits). No worker's clock is ever more than ``s + 1`` ahead
of the slowest. What may not start is not handed out, so that no volunteer waits.

`VectorClock` and `Attendance` are pure state machines: no time of day, no threads. Processes
share a clock as a cell of a parameter server (`SharedClock`). Source: Ho et al. 2013 (stale
synchronous parallel); the protocol published with Paracel is not followed, for it counts
commits twice, modulo the limit, and by the number of workers that are left.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import cast

from stoilo.core.errors import UsageError, WaitError
from stoilo.learn.core.states import State, Stateful
from stoilo.learn.store.protocol import Change, Push
from stoilo.learn.store.server import ParameterServer


@dataclass(slots=True)
class VectorClock(Stateful):
    """Clocks of the live workers, and the time of the server."""

    kept = Stateful.kept | {
        "limit": int | None,
        "time": int,
        "clocks": dict[str, int],
        "_furthest": int,
    }

    limit: int | None = 0  # ``s``; None for no limit
    time: int = 0  # never goes back
    # Of the workers that are alive
    clocks: dict[str, int] = field(default_factory=dict)
    # How long one sign of life counts, s; None when nobody's silence counts
    lease_s: float | None = None
    # Per worker, when its lease ends (s, any clock that does not go back)
    until: dict[str, float] = field(default_factory=dict, compare=False)
    _furthest: int = 0

    def __post_init__(self) -> None:
        if self.limit is not None and self.limit < 0:
            raise UsageError("STO-T040", f"the limit {self.limit} is negative")

    @property
    def lead(self) -> int:
        """How far the fastest live worker is ahead of the slowest, in iterations."""
        return max(self.clocks.values(), default=0) - min(
            self.clocks.values(), default=0
        )

    @property
    def slowest(self) -> int:
        """The lowest clock alive, the furthest when nobody is: behind the time if recalled."""
        return min(self.clocks.values(), default=self._furthest)

    def join(self, workers: Iterable[str], clock: int = 0) -> None:
        """Let workers in, new or come back, at `clock` or the server's time if later.

        Who is alive stays where he is.
        """
        for worker in workers:
            # Never behind the time: nobody shall wait for iterations that are over.
            self.clocks.setdefault(worker, max(clock, self.time))

    def recall(self, worker: str, clock: int) -> None:
        """Let a worker in behind the time, which stays: it does what it left undone.

        Nobody who is alive may start an iteration that is too far ahead of it.
        """
        self.clocks.setdefault(worker, clock)

    def leave(self, worker: str) -> None:
        """Take a worker out that was given up: nobody waits for it any longer."""
        self.clocks.pop(worker, None)
        self._advance()

    def finish(self, worker: str) -> None:
        """Take a worker out that did all its iterations: its clock counts as endless.

        When the last one finishes, the time becomes the furthest clock: a final read
        waits for that.
        """
        self._furthest = max(self._furthest, self.clocks.pop(worker, 0))
        self._advance()

    def may_start(self, worker: str) -> bool:
        """Return whether the worker's next iteration may be handed out."""
        clock = self.clocks.get(worker)
        if clock is None:
            return False
        if self.limit is None:
            return True
        return (self.slowest if clock < self.time else self.time) >= clock - self.limit

    def need(self, worker: str) -> int:
        """Return how old a value the worker may use: fetched at this time or later."""
        if self.limit is None:
            return 0
        return max(0, self.clock_of(worker) - self.limit)

    def clock_of(self, worker: str) -> int:
        """Return a live worker's clock, or raise ``STO-T063``."""
        clock = self.clocks.get(worker)
        if clock is None:
            raise UsageError("STO-T063", f"worker {worker[:40]!r} is not alive")
        return clock

    def commit(self, worker: str, iteration: int) -> bool:
        """Note that `iteration` (from 0) of a worker is in; return whether it was new.

        A repetition, and what comes from a worker that was given up, changes nothing.

        Raises:
            UsageError: ``STO-T063``, an iteration before its predecessor.
        """
        clock = self.clocks.get(worker)
        if clock is None or iteration < clock:
            return False
        if iteration > clock:
            raise UsageError(
                "STO-T063",
                f"iteration {iteration} of {worker[:40]!r} came before {clock}",
            )
        self.clocks[worker] = clock + 1
        self._advance()
        return True

    def renew(self, worker: str, now_s: float) -> None:
        """Note a sign of life."""
        if self.lease_s is not None:
            self.until[worker] = now_s + self.lease_s

    def release(self, worker: str) -> None:
        """Let no lease run: the worker ended its iteration, or waits."""
        self.until.pop(worker, None)

    def expired(self, now_s: float) -> tuple[str, ...]:
        """Return the workers whose lease has ended, in the order of their names."""
        return tuple(sorted(w for w, end in self.until.items() if end <= now_s))

    def _advance(self) -> None:
        self.time = max(self.time, self.slowest)


@dataclass(slots=True)
class Attendance(Stateful):
    """The workers of one training."""

    kept = Stateful.kept | {
        "out": set[str],
        "gone": dict[str, int],
        "missed": int,
    }
    parts = ("clock",)

    clock: VectorClock  # of those that are alive
    total: int  # iterations after which a worker has finished
    # Workers whose present iteration is given out
    out: set[str] = field(default_factory=set)
    # Per worker whose lease ran out, its iteration
    gone: dict[str, int] = field(default_factory=dict)
    # Iterations that were left out: their worker came back too late for them
    missed: int = 0
    _now_s: float | None = None

    @property
    def finished(self) -> bool:
        """Whether every iteration is committed or missed."""
        return not self.clock.clocks and not self.gone

    def note_time(self, now_s: float) -> None:
        """Note the time; those whose lease has ended are not waited for from now on."""
        self._now_s = now_s
        if self.clock.lease_s is None:
            return
        self._recall()
        for worker in self.out & self.clock.clocks.keys() - self.clock.until.keys():
            self.clock.renew(worker, now_s)
        silent = self.clock.expired(now_s)
        for worker in silent:
            self.clock.release(worker)
            self.out.discard(worker)
        # When all are silent the server was down: nobody is given up for that.
        if not self._is_recalling and set(silent) < self.clock.clocks.keys():
            for worker in silent:
                self.gone[worker] = self.clock.clock_of(worker)
                self.clock.leave(worker)

    def next_alarm(self) -> float | None:
        """Return when the next lease ends; None when none does."""
        return min(self.clock.until.values(), default=None)

    def draw(self, room: int, workers: Iterable[str]) -> list[tuple[str, int]]:
        """Return iterations to give out: the slowest workers', then of those gone.

        Args:
            room: at most so many.
            workers: all of them, in the order that counts among equals.
        """
        self._recall()
        free = [worker for worker in workers if worker not in self.out]
        clocks = self.clock.clocks
        ready = [(clocks[w], w) for w in free if self.clock.may_start(w)]
        # The slowest first: the others wait for them.
        ready.sort(key=lambda pair: pair[0])
        gone = {} if self._is_recalling else self.gone
        again = [(gone[w], w) for w in free if w in gone]
        drawn = [(w, iteration) for iteration, w in [*ready, *again][: max(room, 0)]]
        for worker, _ in drawn:
            self.out.add(worker)
            if worker in clocks and self._now_s is not None:
                self.clock.renew(worker, self._now_s)
        return drawn

    def lose(self, worker: str, iteration: int) -> None:
        """Let an iteration that failed be given out again."""
        if self._present(worker) == iteration:
            self._end(worker)

    def answer(self, worker: str, iteration: int) -> bool:
        """Note an answer, bringing back who was gone; return whether it counts."""
        self._recall()
        if self._present(worker) != iteration:
            return False
        self._end(worker)
        if not self._is_recalling and self.gone.pop(worker, None) is not None:
            self.clock.join([worker], iteration)
            self.missed += self.clock.clock_of(worker) - iteration
        # Who came back after others went on has missed this iteration.
        return self.clock.clocks.get(worker) == iteration

    def commit(self, worker: str, iteration: int) -> None:
        """Note that an iteration's updates are in."""
        self.clock.commit(worker, iteration)
        if self.clock.clock_of(worker) >= self.total:
            self.clock.finish(worker)

    def load(self, state: State) -> None:
        """Go on from a saved state; leases begin anew in another process."""
        Stateful.load(self, state)  # no super(): slots make a class anew
        self.clock.until.clear()

    @property
    def _is_recalling(self) -> bool:
        return self.clock.time >= self.total

    def _recall(self) -> None:
        if not self._is_recalling:
            return
        last = min([*self.clock.clocks.values(), *self.gone.values()], default=0)
        limit = self.clock.limit
        for worker, iteration in [*self.gone.items()]:
            if limit is None or iteration <= last + limit:
                self.clock.recall(worker, self.gone.pop(worker))

    def _present(self, worker: str) -> int | None:
        return self.clock.clocks.get(worker, self.gone.get(worker))

    def _end(self, worker: str) -> None:
        self.out.discard(worker)
        self.clock.release(worker)


@dataclass(slots=True)
class SharedClock:
    """One clock for workers in any process: a cell of a parameter server, one thread each.

    Where the server's shards are processes or machines (`stoilo learn shard`), so is the
    clock: behind the same token, durable at each commit, and gone with no kill. An event
    that comes twice changes nothing (`stoilo.learn.store.functions.tick`).

    With `lease_s`, who waits gives up those that hold it up and have committed nothing for
    so long: the slowest never wait themselves. They join again at the server's time.
    """

    server: ParameterServer
    name: str  # of the cell; its pushes are a run of this name
    limit: int | None = 0  # ``s``; the same for all
    lease_s: float | None = None  # that the slowest may be silent, s
    pause_s: float = 0.05  # between two looks, s
    now: Callable[[], float] = time.monotonic
    sleep: Callable[[float], None] = time.sleep
    clock: VectorClock = field(init=False)  # as it was when it was last read
    _version: int = 0
    _since: dict[tuple[str, int], float] = field(default_factory=dict)

    def __post_init__(self) -> None:
        """Make the cell, or find it."""
        self.clock = VectorClock(self.limit)
        self.server.create({self.name: {"": 0}})
        self._read()

    @property
    def time(self) -> int:
        """The lowest clock of those that are alive."""
        return self._read().time

    def join(self, workers: Iterable[str]) -> None:
        """Let workers in, at the server's time; who is alive stays where he is."""
        for worker in workers:
            self._tell(worker, -1)

    def await_start(self, worker: str, limit_s: float | None = None) -> int:
        """Wait until the worker's iteration may run; return its number.

        One that was given up joins again.

        Raises:
            WaitError: ``STO-T063`` when `limit_s` passed before.
        """
        if worker not in self._read().clocks:
            self._tell(worker, -1)
        self._wait(lambda clock: clock.may_start(worker), worker, limit_s)
        return self.clock.clock_of(worker)

    def await_time(self, time: int, limit_s: float | None = None) -> None:
        """Wait until all iterations before `time` are in, or nobody is alive.

        Raises:
            WaitError: ``STO-T063`` when `limit_s` passed before.
        """
        self._wait(lambda c: c.time >= time or not c.clocks, "somebody", limit_s)

    def commit(self, worker: str, iteration: int) -> bool:
        """Note that an iteration is in; return whether it counted."""
        before = self._read().clocks.get(worker)
        self._tell(worker, iteration + 1)
        return before == iteration and self.clock.clocks.get(worker) != before

    def finish(self, worker: str) -> None:
        """Note that a worker did all its iterations: its clock counts as endless."""
        self._tell(worker, math.inf)

    def sync(self, worker: str) -> None:
        """Raise ``STO-T040``: there is no barrier between processes."""
        raise UsageError("STO-T040", f"{worker[:40]!r} has no barrier; take limit 0")

    def _tell(self, worker: str, event: float, *, by: str | None = None) -> None:
        # A cell's marks are never above its version, so that this push is a new one.
        source = f"{self.name}/{worker if by is None else by}"
        change = Change(self.name, "tick", {worker: event})
        self.server.push(Push(source, self._version + 1, [change]))
        self._read()

    def _read(self) -> VectorClock:
        cell = self.server.read([self.name])[self.name]
        clocks, self._version = cast("dict[str, float]", cell.value), cell.version
        self.clock.time = int(clocks[""])
        self.clock.clocks = {
            worker: int(clock)
            for worker, clock in clocks.items()
            if worker and clock < math.inf
        }
        return self.clock

    def _wait(
        self, ready: Callable[[VectorClock], bool], worker: str, limit_s: float | None
    ) -> None:
        end = math.inf if limit_s is None else self.now() + limit_s
        while not ready(self._read()):
            self._expire()
            if self.now() >= end:
                raise WaitError("STO-T063", f"{worker[:40]!r} waits for the others")
            self.sleep(self.pause_s)

    def _expire(self) -> None:
        if self.lease_s is None:
            return
        clocks, slowest = self.clock.clocks, self.clock.slowest
        held = [(w, clock) for w, clock in clocks.items() if clock == slowest]
        self._since = {pair: self._since.get(pair, self.now()) for pair in held}
        for (worker, clock), since in self._since.items():
            if self.now() - since >= self.lease_s:
                # Not in its name: that would hide what it says at the same time.
                self._tell(worker, -2 - clock, by="")
