"""Workers of given speeds on a virtual clock: for tests and benchmarks of `learn.store`."""

from __future__ import annotations

import heapq
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field

__all__ = ["Clockwork"]


@dataclass(slots=True)
class Clockwork:
    """Runs iterations of workers, each as soon as it may start; time costs nothing.

    Attributes:
        may_start: whether a worker's next iteration may begin.
        begin: called when one begins; what it reads, it reads here.
        finish: called when one ends; returns whether the worker goes on.
        delay: how long a worker's next iteration takes.
        now: the virtual time.
    """

    may_start: Callable[[str], bool]
    begin: Callable[[str], None]
    finish: Callable[[str], bool]
    delay: Callable[[str], float]
    now: float = 0.0
    _busy: list[tuple[float, int, str]] = field(default_factory=list)
    _begun: int = 0

    def run(self, workers: Iterable[str], until: Callable[[], bool]) -> float:
        """Go on until `until` is true or nothing more can happen; return the time."""
        idle = list(workers)
        while True:
            waiting = []
            for worker in idle:
                if self.may_start(worker):
                    self._start(worker)
                else:
                    waiting.append(worker)
            idle = waiting
            if not self._busy or until():
                return self.now
            self.now, _, worker = heapq.heappop(self._busy)
            if self.finish(worker):
                idle.append(worker)

    def _start(self, worker: str) -> None:
        self.begin(worker)
        self._begun += 1
        heapq.heappush(self._busy, (self.now + self.delay(worker), self._begun, worker))
