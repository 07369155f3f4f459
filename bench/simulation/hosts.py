"""The hosts of a population: how fast they are, when they are on, what they answer."""

from __future__ import annotations

import math
import random
from dataclasses import dataclass
from enum import Enum
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from bench.simulation.scenario import Scenario

__all__ = ["RIGHT", "Host", "HostKind", "HostNature"]

RIGHT: Final = "right"
"""The one true answer to any workunit."""

SPREAD_OF_SPEED: Final = 0.5
SPREAD_OF_TASKS: Final = 0.3
"""Standard deviations of the logarithms of hosts' speeds and of tasks' lengths."""


class HostKind(Enum):
    """Whose side a host is on."""

    HONEST = "honest"
    CHEAT = "cheat"
    OWN = "own"  # the project's


@dataclass(frozen=True, slots=True)
class Host:
    """One computer with its own user.

    Attributes:
        id: number, from 1; the user has the same.
        kind: whose side it is on.
        slowness: time that it takes, as a multiple of a mean host's.
    """

    id: int
    kind: HostKind
    slowness: float = 1.0

    @property
    def key(self) -> str:
        """Its identity (BOINC's host CPID)."""
        return f"{self.id:032x}"


class HostNature:
    """Draws hosts and what becomes of them, from one seed.

    Every draw about a host's work comes from a stream of that host's own, so that what
    happens to one does not change another's luck.
    """

    def __init__(self, scenario: Scenario) -> None:
        self._scenario = scenario
        self._streams: dict[int, random.Random] = {}
        self._made = 0

    def make(self, kind: HostKind) -> Host:
        """Return a new host of a kind."""
        self._made += 1
        if kind is HostKind.OWN:
            return Host(self._made, kind)
        draw = self._stream(self._made)
        slowness = draw.lognormvariate(0.0, SPREAD_OF_SPEED)
        if draw.random() < self._scenario.stragglers:
            slowness *= self._scenario.straggler_factor
        return Host(self._made, kind, slowness)

    def first_call(self, host: Host) -> float:
        """Return when a host calls first, s: hosts do not begin all at once."""
        return self._stream(host.id).uniform(0, self._scenario.task_s)

    def busy_s(self, host: Host, copies: int) -> float | None:
        """Return how long a host is away with copies, s; None when it never returns.

        The time holds the pauses that fall into it.
        """
        draw, scenario = self._stream(host.id), self._scenario
        work = sum(
            scenario.task_s * draw.lognormvariate(0.0, SPREAD_OF_TASKS)
            for _ in range(copies)
        )
        total = left = work * host.slowness
        if host.kind is HostKind.OWN:
            return total
        while (on := draw.expovariate(1 / scenario.session_s)) < left:
            left -= on
            total += draw.expovariate(1 / scenario.pause_s)
        gone = draw.random() < -math.expm1(-total / scenario.life_s)
        return None if gone else total

    def answer(self, host: Host, workunit: int) -> str:
        """Return what a host answers; empty when its run fails."""
        scenario = self._scenario
        if host.kind is HostKind.CHEAT:
            if not self._is_falsified(host, workunit):
                return RIGHT
            return "wrong" if scenario.collude else f"wrong {host.id}"
        failed = self._stream(host.id).random() < scenario.fails
        return "" if failed and host.kind is HostKind.HONEST else RIGHT

    def _is_falsified(self, host: Host, workunit: int) -> bool:
        """Say whether a cheat falsifies a workunit; colluding ones agree about which."""
        if self._scenario.corrupt >= 1:
            return True
        who = 0 if self._scenario.collude else host.id
        drawn = random.Random(f"{self._scenario.seed}/{workunit}/{who}")  # noqa: S311 - a simulation
        return drawn.random() < self._scenario.corrupt

    def _stream(self, host: int) -> random.Random:
        """Return a host's own draws."""
        if host not in self._streams:
            seed = f"{self._scenario.seed}/host/{host}"
            self._streams[host] = random.Random(seed)  # noqa: S311 - a simulation
        return self._streams[host]
