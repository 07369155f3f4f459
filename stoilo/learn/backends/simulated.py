"""Volunteers on a virtual clock: speeds, lost tasks, death and return, cheats; no sleeping.

The kernels run for real; only time and behaviour are played. The same seed gives the same
run, ending for ending.
"""

from __future__ import annotations

import heapq
import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from stoilo.client.results import SystemError as TaskSystemError
from stoilo.learn.backends import Job, JobEnd, OwnBackend, leave
from stoilo.learn.backends.local import run_job

MOST_DOUBLED = 10  # answers at fault that make a host's pause longer
Cheat = Callable[[Any], Any]  # what a dishonest host sends instead of the honest answer


@dataclass(frozen=True, slots=True)
class Spell:
    """A time of absence: from `start`, s, for `length`, s; work under way is lost."""

    start: float
    length: float


@dataclass(frozen=True, slots=True)
class SimulatedHost:
    """One volunteer.

    Attributes:
        samples_per_s: its speed.
        poll_s: from one task's end to the next one's start.
        loss: probability that a task never comes back.
        stall: probability that a task takes `stall_times` as long.
        stall_times: how much longer it takes then.
        away: when it is not there.
        cheat: makes its answers; None when honest.
    """

    samples_per_s: float = 100.0
    poll_s: float = 1.0
    loss: float = 0.0
    stall: float = 0.0
    stall_times: float = 6.0
    away: Sequence[Spell] = ()
    cheat: Cheat | None = None


@dataclass(order=True, slots=True)
class _Event:
    at: float
    number: int
    host: int = field(compare=False)
    job: Job | None = field(compare=False)


def _passes(job: Job, ending: JobEnd) -> bool:
    return ending.error is not None or job.check is None or job.check(ending.value)


class SimulatedBackend(OwnBackend):
    """Runs jobs on simulated hosts; each takes one at a time, first come, first served.

    Args:
        hosts: who is there.
        deadline_s: a task that has not come back after this is given to another host.
        tries: after so many losses the task ends with an error of the system.
        seed: of losses and stalls.
    """

    def __init__(
        self,
        hosts: Sequence[SimulatedHost],
        *,
        deadline_s: float = 600.0,
        tries: int = 5,
        seed: int = 0,
    ) -> None:
        self.hosts = tuple(hosts)
        self.deadline_s, self.tries = deadline_s, tries
        self.served = [0] * len(self.hosts)
        self.faults = [0] * len(self.hosts)  # each doubles a host's pause
        self._random = random.Random(seed)  # noqa: S311 - a simulation's own
        self._clock, self._numbers = 0.0, 0
        self._waiting: list[Job] = []
        self._lost: dict[str, int] = {}
        self._open: set[str] = set()
        self._givers: dict[str, int] = {}  # of answers that may still be refused
        self._free = list(range(len(self.hosts)))
        self._events: list[_Event] = []

    async def submit(self, job: Job) -> str:
        """Queue the job; its key is its id."""
        if job.key not in self._open:
            self._open.add(job.key)
            self._waiting.append(job)
            self._assign()
        return job.key

    def _assign(self) -> None:
        for host in list(self._free):
            while self._waiting and self._waiting[0].key not in self._open:
                self._waiting.pop(0)
            if not self._waiting:
                return
            back = self._away_until(host, self._clock)
            self._free.remove(host)
            if back is None:
                self._start(host, self._waiting.pop(0))
            else:
                self._push(back, host, None)

    def _start(self, host: int, job: Job) -> None:
        who, deadline_s = self.hosts[host], job.deadline_s or self.deadline_s
        takes = job.samples / who.samples_per_s
        if self._random.random() < who.stall:
            takes *= who.stall_times
        end = self._clock + takes
        is_gone = any(self._clock <= s.start < end for s in who.away)
        if is_gone or self._random.random() < who.loss:
            self._lost[job.key] = self._lost.get(job.key, 0) + 1
            self._push(self._clock + deadline_s, -1, job)
            self._push(end + who.poll_s, host, None)
        else:
            self._push(end, host, job)
            if job.deadline_s and takes > job.deadline_s:  # the first answer counts
                self._push(self._clock + deadline_s, -1, job)

    def _away_until(self, host: int, at: float) -> float | None:
        backs = [
            s.start + s.length
            for s in self.hosts[host].away
            if s.start <= at < s.start + s.length
        ]
        return max(backs, default=None)

    def _push(self, at: float, host: int, job: Job | None) -> None:
        self._numbers += 1
        heapq.heappush(self._events, _Event(at, self._numbers, host, job))

    async def next(self, wait_s: float | None = None) -> JobEnd | None:
        """Move the clock to the next ending; None when none comes (within `wait_s`)."""
        until = None if wait_s is None else self._clock + wait_s
        while self._events and self._open:
            if until is not None and self._events[0].at > until:
                self._clock = until
                return None
            event = heapq.heappop(self._events)
            self._clock = event.at
            ending = self._settle(event)
            self._assign()
            if ending is not None:
                return ending
        return None

    def _settle(self, event: _Event) -> JobEnd | None:
        job = event.job
        if event.host < 0 and job is not None:
            return self._give_again(job)
        if job is None:
            self._free.append(event.host)
            return None
        if job.key not in self._open:
            self._pause(event.host)
            return None
        ending = self._answer(event.host, job)
        if not _passes(job, ending):
            self.faults[event.host] += 1
            self._lost[job.key] = self._lost.get(job.key, 0) + 1
            self._pause(event.host)
            return self._give_again(job)
        self._pause(event.host)
        self._open.discard(job.key)
        self._givers[job.key] = event.host
        self.served[event.host] += 1
        return leave(job, ending)

    def _pause(self, host: int) -> None:
        # The later, the more of its last answers were at fault.
        # As the engine's back-off: who fails often asks rarely.
        pause = self.hosts[host].poll_s * 2 ** min(self.faults[host], MOST_DOUBLED)
        self._push(self._clock + pause, host, None)

    async def refuse(self, job_id: str, reason: str) -> None:  # noqa: ARG002 - ours know why
        """Note that an answer could not be used; its host pauses longer from now on."""
        host = self._givers.pop(job_id, None)
        if host is not None:
            self.faults[host] += 1

    def _give_again(self, job: Job) -> JobEnd | None:
        if job.key not in self._open:
            return None
        if self._lost.get(job.key, 0) < self.tries:
            # To the front: it has waited longest.
            self._waiting.insert(0, job)
            return None
        self._open.discard(job.key)
        error = TaskSystemError("STO-R081", "no volunteer returned it", job.key)
        return JobEnd(job.key, None, error, self._clock)

    def _answer(self, host: int, job: Job) -> JobEnd:
        ending = run_job(job)
        cheat = self.hosts[host].cheat
        value = ending.value if cheat is None else cheat(ending.value)
        computed_s = job.samples / self.hosts[host].samples_per_s
        return JobEnd(job.key, value, ending.error, self._clock, computed_s)

    async def cancel(self, job_id: str) -> None:
        """Forget the job; its host stays busy until it would have ended."""
        self._open.discard(job_id)

    def now(self) -> float:
        """Return the virtual clock, s from 0."""
        return self._clock

    async def close(self) -> None:
        """Let everything go."""
        self._open.clear()
        self._waiting.clear()
