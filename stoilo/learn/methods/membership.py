"""Which workers are out with an iteration, and which nobody waits for any longer.

A worker that goes out has a lease. When it runs out while others live, its clock leaves:
the others go on, and its iteration is given out again, once more, to whoever is there. The
first answer brings the worker back, at the server's time; where that has moved on, the
answer is too old to count, and the iterations between are missed. When nobody at all is
heard of (a server is down), nobody leaves: all iterations are given out again.

Once all others have finished, those still gone are brought back where they stopped, the
furthest behind first, and do what is left of theirs; then nobody leaves any more, and what
a lease outlasts is given out again. So each iteration is either committed or missed.

A pure state machine; the driver tells it the time.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from stoilo.learn.core.orders import Plain
from stoilo.learn.core.states import read_int, read_keys, read_table
from stoilo.learn.store.clock import Leases, VectorClock


@dataclass(slots=True)
class Attendance:
    """The workers of one training.

    Attributes:
        clock: of those that are alive.
        total: iterations after which a worker has finished.
        leases: None when nobody's silence counts.
        out: workers whose present iteration is given out.
        gone: per worker whose lease ran out, its iteration.
        missed: iterations that were left out: their worker came back too late for them.
    """

    clock: VectorClock
    total: int
    leases: Leases | None = None
    out: set[str] = field(default_factory=set)
    gone: dict[str, int] = field(default_factory=dict)
    missed: int = 0
    _now_s: float | None = None

    @property
    def finished(self) -> bool:
        """Whether every iteration is committed or missed."""
        return not self.clock.clocks and not self.gone

    def note_time(self, now_s: float) -> None:
        """Note the time; those whose lease has ended are not waited for from now on."""
        self._now_s = now_s
        if self.leases is None:
            return
        self._recall()
        for worker in self.out & self.clock.clocks.keys() - self.leases.until.keys():
            self.leases.renew(worker, now_s)
        silent = self.leases.expired(now_s)
        for worker in silent:
            self.leases.release(worker)
            self.out.discard(worker)
        # When all are silent the server was down: nobody is given up for that.
        if not self._is_recalling and set(silent) < self.clock.clocks.keys():
            for worker in silent:
                self.gone[worker] = self.clock.clock_of(worker)
                self.clock.leave(worker)

    def next_alarm(self) -> float | None:
        """Return when the next lease ends; None when none does."""
        ends = self.leases.until.values() if self.leases is not None else ()
        return min(ends, default=None)

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
            if worker in clocks and self.leases is not None and self._now_s is not None:
                self.leases.renew(worker, self._now_s)
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

    def save(self) -> dict[str, Plain]:
        """Return the state as plain data; leases begin anew in another process."""
        return {
            "clock": self.clock.save(),
            "out": [*sorted(self.out)],
            "gone": dict(self.gone),
            "missed": self.missed,
        }

    def load(self, plain: Mapping[str, Plain]) -> None:
        """Go on from what was saved; raises ``STO-T041`` or ``STO-T065``."""
        gone = read_table(plain, "gone")
        self.clock = VectorClock.restore(read_table(plain, "clock"))
        self.out = set(read_keys(plain, "out"))
        self.gone = {worker: read_int(gone, worker) for worker in gone}
        self.missed = read_int(plain, "missed")
        if self.leases is not None:
            self.leases.until.clear()

    @property
    def _is_recalling(self) -> bool:
        """Whether all who were never given up, or came back in time, have finished."""
        return self.clock.time >= self.total

    def _recall(self) -> None:
        """Bring back who is gone, if his turn has come: within the limit of the last."""
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
        if self.leases is not None:
            self.leases.release(worker)
