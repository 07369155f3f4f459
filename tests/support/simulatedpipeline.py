"""A pipeline's orders played through with times that are said: when who does what."""

from __future__ import annotations

import itertools
from collections.abc import Sequence

from stoilo.core.errors import UsageError
from stoilo.learn.cells.schedules import Op, Places
from stoilo.learn.cells.timeline import Kind, Span

__all__ = ["most_in_flight", "simulate"]


def most_in_flight(ops: Sequence[Op]) -> int:
    """Return how many batches a member has at most between forward and backward."""
    steps = {"F": 1, "B": -1, "U": 0}
    return max(itertools.accumulate(steps[op.kind] for op in ops), default=0)


def simulate(
    orders: Sequence[Sequence[Op]],
    places: Places,
    forward_s: float = 1.0,
    backward_s: float = 2.0,
) -> list[Span]:
    """Return what happens when: operations take so long each, messages and updates nothing.

    Raises:
        UsageError: ``STO-T040`` when the members wait for each other.
    """
    going = _Simulation(orders, places, {"F": forward_s, "B": backward_s, "U": 0.0})
    while any([going.advance(rank) for rank in range(places.members)]):  # noqa: C419 - all
        pass
    if any(done < len(ops) for done, ops in zip(going.at, orders, strict=True)):
        raise UsageError("STO-T040", "the members of the pipeline wait for each other")
    return going.spans


_KINDS: dict[str, Kind] = {"F": "F", "B": "B", "U": "sync"}


class _Simulation:
    def __init__(
        self, orders: Sequence[Sequence[Op]], places: Places, takes: dict[str, float]
    ) -> None:
        self._orders, self._places, self._takes = orders, places, takes
        self._clocks = [0.0] * places.members
        self._ended: dict[tuple[str, int, int], float] = {}  # kind, stage, number
        # By stage and update: who came to it, and when
        self._came: dict[tuple[int, int], dict[int, float]] = {}
        self.at = [0] * places.members  # how many operations of each are done
        self.spans: list[Span] = []

    def advance(self, rank: int) -> bool:
        """Do what a member can do now; return whether that was anything."""
        begun, stage = self.at[rank], self._places.find(rank)[0]
        for op in self._orders[rank][begun:]:
            begin = self._find_begin(rank, stage, op)
            if begin is None:
                break
            self._do(rank, stage, op, begin)
        return self.at[rank] > begun

    def _find_begin(self, rank: int, stage: int, op: Op) -> float | None:
        if op.kind == "U":
            came = self._came.setdefault((stage, op.number), {})
            came[rank] = self._clocks[rank]
            all_came = len(came) == self._places.replicas[stage]
            return max(came.values()) if all_came else None
        giver = stage - 1 if op.kind == "F" else stage + 1
        if not 0 <= giver < len(self._places.replicas):
            return self._clocks[rank]
        given = self._ended.get((op.kind, giver, op.number))
        return None if given is None else max(given, self._clocks[rank])

    def _do(self, rank: int, stage: int, op: Op, begin: float) -> None:
        end = begin + self._takes[op.kind]
        kind = _KINDS[op.kind]
        if begin > self._clocks[rank]:
            wait = Span(rank, "wait", op.number, self._clocks[rank], begin)
            self.spans.append(wait)
        self.spans.append(Span(rank, kind, op.number, begin, end))
        self._clocks[rank] = self._ended[op.kind, stage, op.number] = end
        self.at[rank] += 1
