"""Who of a pipeline does what, in which order: pure functions of numbers.

A pipeline has stages of consecutive layers; stage s may have several replicas, and batch b
goes to replica ``b mod m`` there, forward and backward. Each member's order is fixed before
anything runs, so nobody asks anybody. Members are numbered stage
by stage. Sources: PipeDream (SOSP 2019) for 1F1B without flush and 1F1B-RR, GPipe (2019).
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from stoilo.core.errors import UsageError

# One batch is everywhere before the next begins; all forwards, then all backwards; one
# forward, one backward
SCHEDULES = ("naive", "gpipe", "1f1b")
NAIVE, GPIPE, ONE_EACH = SCHEDULES


class Op(NamedTuple):
    """One thing that a member does.

    `kind` is ``F`` or ``B`` of the batch `number`, or ``U``: the update that the `number`-th
    group of batches makes together, which replicas of a stage make together as well.
    """

    kind: str
    number: int


@dataclass(frozen=True, slots=True)
class Places:
    """Which member has which stage.

    Attributes:
        replicas: of each stage, how many members have it.
    """

    replicas: tuple[int, ...]

    def __post_init__(self) -> None:
        """Raise ``STO-T040`` unless every stage has a member."""
        if not self.replicas or min(self.replicas) < 1:
            raise UsageError("STO-T040", f"a pipeline of {self.replicas} replicas")

    @property
    def members(self) -> int:
        """How many there are."""
        return sum(self.replicas)

    def find(self, rank: int) -> tuple[int, int]:
        """Return a member's stage and which replica of it he is."""
        return self.all()[rank]

    def all(self) -> list[tuple[int, int]]:
        """Return each member's stage and replica, by rank."""
        return [(s, r) for s, width in enumerate(self.replicas) for r in range(width)]

    def rank(self, stage: int, batch: int) -> int:
        """Return the member who has a batch at a stage."""
        return sum(self.replicas[:stage]) + batch % self.replicas[stage]

    def ranks(self, stage: int) -> range:
        """Return the members who have a stage."""
        start = sum(self.replicas[:stage])
        return range(start, start + self.replicas[stage])

    def depth(self, stage: int) -> int:
        """Return how many batches a replica has between forward and backward: warm-up + 1.

        As many as keep everybody behind busy; without replicas, stages from here on.
        """
        behind = self.members - 1 - sum(self.replicas[:stage])
        return behind // self.replicas[stage] + 1


def order_all(
    schedule: str, places: Places, batches: int, flush: int = 0
) -> list[tuple[Op, ...]]:
    """Return each member's operations.

    Args:
        schedule: one of `SCHEDULES`.
        places: the members.
        batches: how many pass through.
        flush: after so many batches the pipeline empties and one update is made of all of
            them. 0: never, and a stage's update is made of one batch of each replica.
    """
    if schedule not in SCHEDULES:
        raise UsageError(
            "STO-T040", f"no schedule {schedule!r}", hint=", ".join(SCHEDULES)
        )
    ranks = range(places.members)
    return [tuple(_order(schedule, places, r, batches, flush)) for r in ranks]


def span_of(places: Places, stage: int, flush: int) -> int:
    """Return how many batches, one after the other, make one update of a stage."""
    return flush or places.replicas[stage]


def _order(
    schedule: str, places: Places, rank: int, batches: int, flush: int
) -> Iterator[Op]:
    stage, replica = places.find(rank)
    span, width = span_of(places, stage, flush), places.replicas[stage]
    depth = {NAIVE: 1, GPIPE: batches}.get(schedule, places.depth(stage))
    size = flush or batches or 1
    for start in range(0, batches, size):
        end = min(start + size, batches)
        mine = range(start + (replica - start) % width, end, width)
        yield from _line_up(mine, depth, 0 if flush else span)
        last = (end - 1) // span
        if flush or not mine or mine[-1] // span < last:
            # All of a flush's; or the others', for which there is no batch here.
            yield Op("U", last)


def _line_up(batches: Sequence[int], depth: int, span: int) -> Iterator[Op]:
    """Yield forwards and backwards, never more than `depth` batches between them.

    After each backward comes the update of its batch's group, where `span` is not 0.
    """
    for count in range(1, len(batches) + depth):
        if count <= len(batches):
            yield Op("F", batches[count - 1])
        if count >= depth:
            done = batches[count - depth]
            yield Op("B", done)
            if span:
                yield Op("U", done // span)


def versions_met(ops: Sequence[Op]) -> dict[int, int]:
    """Return how many updates a member had made at each of his forwards, by batch."""
    made = itertools.accumulate(op.kind == "U" for op in ops)
    return {op.number: n for op, n in zip(ops, made, strict=True) if op.kind == "F"}


def input_versions(
    places: Places, stage: int, orders: Sequence[Sequence[Op]], flush: int
) -> dict[int, int]:
    """Return the version for each batch at a stage, so that all stages use the same.

    That is vertical sync: the updates that the batch met at the first stage, and no later
    ones. Where stages have different replicas, those that hold only batches of these.
    """
    own, first = (span_of(places, one, flush) for one in (stage, 0))
    met = {b: n for r in places.ranks(0) for b, n in versions_met(orders[r]).items()}
    return {batch: made * first // own for batch, made in met.items()}


def leave_out(ops: Sequence[Op], before: int, span: int) -> tuple[Op, ...]:
    """Return what is left to do when all batches before one are done at every stage.

    Args:
        ops: a member's.
        before: the first batch that is not done; a multiple of each stage's `span`.
        span: of his stage.
    """
    first = {"F": before, "B": before, "U": before // span}
    return tuple(op for op in ops if op.number >= first[op.kind])
