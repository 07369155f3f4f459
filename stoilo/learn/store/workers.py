"""Workers of the project's own, in threads beside the server: they wait, read and push.

For project-run workers in threads. A worker waits where it reads; its lease runs from there
to its commit. One whose lease has ended is not waited for; when it comes back after all it
joins at the server's time, and the iteration that it was in does not count.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Generic, TypeVar, cast

from stoilo.core.errors import UsageError, WaitError
from stoilo.learn.store.clock import SharedClock, VectorClock
from stoilo.learn.store.protocol import Change, Push, ShardOptimizer, Tagged
from stoilo.learn.store.server import ParameterServer
from stoilo.learn.store.values import Value


class ClockService:
    """One clock, any number of threads."""

    def __init__(
        self,
        workers: Iterable[str],  # who takes part
        # How many iterations a worker may be ahead; 0 is BSP, None is ASP
        limit: int | None = 0,
        *,
        # How long an iteration may take before nobody waits for it; None for ever
        lease_s: float | None = None,
        # Any clock in s that does not go back
        now: Callable[[], float] = time.monotonic,
    ) -> None:
        self.clock = VectorClock(limit, lease_s=lease_s)
        self.clock.join(workers)
        self._now = now
        self._changed = threading.Condition()
        self._arrived: set[str] = set()
        self._barriers = 0

    @property
    def time(self) -> int:
        """The lowest clock of those that are alive."""
        with self._changed:
            return self.clock.time

    def await_start(self, worker: str, limit_s: float | None = None) -> int:
        """Wait until the worker's iteration may run; return its number.

        A sign of life; one that was given up joins again.

        Raises:
            WaitError: ``STO-T063`` when `limit_s` passed before.
        """
        with self._changed:
            self.clock.join([worker])
            self._wait(worker, lambda: self.clock.may_start(worker), limit_s)
            self.clock.renew(worker, self._now())
            return self.clock.clock_of(worker)

    def await_time(self, time: int, limit_s: float | None = None) -> None:
        """Wait until all iterations before `time` are in, or nobody is alive.

        Raises:
            WaitError: ``STO-T063`` when `limit_s` passed before.
        """
        with self._changed:
            self._wait(
                "", lambda: self.clock.time >= time or not self.clock.clocks, limit_s
            )

    def commit(self, worker: str, iteration: int) -> bool:
        """Note that an iteration is in; return whether it counted."""
        with self._changed:
            self._expire()
            self.clock.release(worker)
            counted = self.clock.commit(worker, iteration)
            self._changed.notify_all()
            return counted

    def sync(self, worker: str) -> None:
        """Wait until every worker that is alive has come here too (a barrier).

        Between reading and updating it makes an iteration of BSP exactly the serial one:
        nobody reads what others have already done in it.
        """
        with self._changed:
            number = self._barriers
            self._arrived.add(worker)
            self._wait(worker, lambda: self._has_met(number), None)
            if worker in self.clock.clocks:
                self.clock.renew(worker, self._now())

    def finish(self, worker: str) -> None:
        """Note that a worker did all its iterations."""
        with self._changed:
            self.clock.release(worker)
            self.clock.finish(worker)
            self._changed.notify_all()

    def _has_met(self, number: int) -> bool:
        # The last one to come opens the barrier.
        if number == self._barriers and self.clock.clocks.keys() <= self._arrived:
            self._barriers, self._arrived = number + 1, set()
            self._changed.notify_all()
        return number != self._barriers

    def _wait(
        self, worker: str, is_ready: Callable[[], bool], limit_s: float | None
    ) -> None:
        # Who waits here is alive: no lease runs meanwhile.
        end = None if limit_s is None else self._now() + limit_s
        while not is_ready():
            self.clock.release(worker)
            self._expire()
            if is_ready():
                return
            if end is not None and self._now() >= end:
                raise WaitError("STO-T063", f"{worker[:40]!r} waits for the others")
            self._changed.wait(self._pause_s(end))

    def _expire(self) -> None:
        """Give up who is silent: nobody waits for him; he may join again."""
        for worker in self.clock.expired(self._now()):
            self.clock.release(worker)
            self.clock.leave(worker)
            self._changed.notify_all()

    def _pause_s(self, end: float | None) -> float | None:
        # Nothing but a commit can happen before the next lease's end.
        ends = [*self.clock.until.values(), *([] if end is None else [end])]
        return max(1e-3, min(ends) - self._now()) if ends else None


V = TypeVar("V")


@dataclass(frozen=True, slots=True)
class Cached(Generic[V]):
    """A copy of a value."""

    value: V  # as fetched, with the reader's own updates since
    at: int  # the server's time when it was fetched


@dataclass(slots=True)
class CachedReader(Generic[V]):
    """One worker's reads."""

    worker: str  # whose clock says how old a copy may be
    clock: VectorClock  # the server's
    # Returns values of several keys from the server
    fetch: Callable[[Sequence[str]], Mapping[str, V]]
    # Without a limit (ASP), iterations after which a copy is fetched anew
    period: int = 1
    cached: dict[str, Cached[V]] = field(default_factory=dict)  # copies by key
    _fetched: dict[str, int] = field(default_factory=dict)

    def read(self, key: str) -> V:
        """Return a value that is new enough; see `read_many`."""
        return self.read_many([key])[key]

    def read_many(self, keys: Iterable[str]) -> dict[str, V]:
        """Return values that are new enough; those that are not come in one fetch.

        Raises:
            UsageError: ``STO-T063``, the worker is too far ahead to read at all: its
                iteration should not have been handed out.
        """
        if not self.clock.may_start(self.worker):
            raise UsageError(
                "STO-T063", f"worker {self.worker[:40]!r} must wait for the others"
            )
        wanted = tuple(keys)
        stale = [key for key in dict.fromkeys(wanted) if not self._is_kept(key)]
        at = self.clock.time  # before the fetch: others may commit meanwhile
        fetched = self.fetch(stale) if stale else {}
        for key in stale:
            self.cached[key] = Cached(fetched[key], at)
            self._fetched[key] = self.clock.clock_of(self.worker)
        return {key: self.cached[key].value for key in wanted}

    def note_own(self, changed: Mapping[str, Callable[[V], V]]) -> None:
        """Apply the worker's own updates to its copies: it reads what it wrote."""
        for key, change in changed.items():
            copy = self.cached.get(key)
            if copy is not None:
                self.cached[key] = Cached(change(copy.value), copy.at)

    def forget(self, keys: Iterable[str]) -> None:
        """Drop copies: they are fetched anew."""
        for key in keys:
            self.cached.pop(key, None)

    def _is_kept(self, key: str) -> bool:
        copy = self.cached.get(key)
        return copy is not None and self._is_fresh(key, copy)

    def _is_fresh(self, key: str, copy: Cached[V]) -> bool:
        if self.clock.limit is None:
            age = self.clock.clock_of(self.worker) - self._fetched[key]
            return age < self.period
        return copy.at >= self.clock.need(self.worker)


_UPDATES = 1 << 20  # most updates of an iteration: a push's number is made of both


class Worker:
    """One worker; one thread uses it."""

    def __init__(
        self,
        name: str,  # as the clock knows it
        server: ParameterServer,  # where the values are
        # Shared by all workers: of this process, or of any
        clock: ClockService | SharedClock,
        *,
        total: int,  # iterations to do
        # Names the training: one that is repeated under the same name after a crash
        # repeats its pushes, which count once
        run: str = "run",
        # Without a limit, iterations after which a copy is fetched anew
        period: int = 1,
    ) -> None:
        self.name, self.total = name, total
        self._server, self._service = server, clock
        self._source = f"{run}/{name}"
        self._reader = CachedReader[Value](name, clock.clock, self._fetch, period)
        self._seen: dict[str, Tagged] = {}  # as fetched last: what is not new stays
        self._iteration = 0
        self._pushes = 0

    def iterations(self) -> Iterator[int]:
        """Yield the number of each iteration as it may run; its commit follows its body.

        Numbers are left out where the worker was given up and the others went on.
        """
        while (iteration := self._service.await_start(self.name)) < self.total:
            self._iteration, self._pushes = iteration, 0
            yield iteration
            self._service.commit(self.name, iteration)
        self._service.finish(self.name)

    def read(self, key: str) -> Any:  # noqa: ANN401 - the caller knows what it keeps
        """Return a value that is new enough; waits for slower workers if need be."""
        return self.read_many([key])[key]

    def read_many(self, keys: Iterable[str]) -> dict[str, Any]:
        """Return several values; what is too old is fetched in one request."""
        self._service.await_start(self.name)  # and a sign of life
        return self._reader.read_many(keys)

    def read_last(self, keys: Iterable[str]) -> dict[str, Any]:
        """Return values with all iterations of all who live; for after one's own last."""
        self._service.await_time(self.total)
        return self._fetch(keys)

    def write(self, key: str, value: Value) -> None:
        """Make a value; where it is there already, it stays as it is."""
        self._server.create({key: value})

    def update(self, key: str, change: Value, function: str = "add") -> None:
        """Have ``function(value, change)`` done at the server; it is in afterwards."""
        self.update_many({key: change}, function)

    def update_many(self, changes: Mapping[str, Value], function: str = "add") -> None:
        """Update several values in one request."""
        sequence = self._iteration * _UPDATES + self._pushes
        self._pushes += 1
        entries = [Change(key, function, change) for key, change in changes.items()]
        self._server.push(Push(self._source, sequence, entries))
        found = self._server.functions[function]
        if isinstance(found, ShardOptimizer):  # its state is at the shards only
            self._reader.forget(changes)
            return
        self._reader.note_own(
            {key: partial(_own, found.apply, change) for key, change in changes.items()}
        )

    def sync(self) -> None:
        """Wait until all other workers are here, too."""
        self._service.sync(self.name)

    def _fetch(self, keys: Iterable[str]) -> dict[str, Value]:
        wanted = tuple(keys)
        known = {
            key: self._seen[key].tag if key in self._seen else "" for key in wanted
        }
        found = self._server.read_tagged(known)
        self._seen |= {key: one for key, one in found.items() if one.tag != known[key]}
        return {key: cast("Value", self._seen[key].value) for key in wanted}


def _own(
    apply: Callable[[Any, Any], Any],
    change: Value,
    value: Any,  # noqa: ANN401 - as `apply` takes it
) -> Any:  # noqa: ANN401 - as `apply` gives it
    return apply(value, change)
