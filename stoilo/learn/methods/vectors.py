"""Vectors that lie in shards: commands go out, scalars come back, no vector travels.

This is DistBelief's way to run a batch optimiser: the coordinator names vectors and issues
dot products, sums and scalings; each shard does them on its range, in double precision.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterable, Sequence
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from stoilo.core.errors import UsageError
from stoilo.learn.methods.states import join_states, select, unfit
from stoilo.learn.work import State

__all__ = ["LocalShard", "Shard", "Vectors"]

Floats = NDArray[np.float64]


class Shard(Protocol):
    """A range of every vector, by name; each command acts on this range alone."""

    @property
    def size(self) -> int:
        """How many entries the range has."""

    def put(self, name: str, values: Floats) -> None:
        """Set a vector's range."""

    def get(self, name: str) -> Floats:
        """Return a vector's range: for snapshots only."""

    def accumulate(self, name: str, values: Floats) -> None:
        """Add what a volunteer sent to a vector's range."""

    def zero(self, name: str) -> None:
        """Set a vector to zeros."""

    def assign(self, target: str, factor: float, source: str) -> None:
        """``target = factor * source``."""

    def axpy(self, target: str, factor: float, source: str) -> None:
        """``target = target + factor * source``."""

    def dot(self, one: str, other: str) -> float:
        """Return this range's part of a scalar product."""

    def largest(self, name: str) -> float:
        """Return the largest absolute entry of this range."""

    def total(self, name: str) -> float:
        """Return the sum of absolute entries of this range."""

    def drop(self, name: str) -> None:
        """Forget a vector, if it is there."""

    def save(self) -> State:
        """Return what `load` needs: the ranges, or where they are kept."""

    def load(self, state: State) -> None:
        """Go on from a saved state; what came later is forgotten."""

    def close(self) -> None:
        """End it."""


class LocalShard:
    """A shard in this process; see `Shard` for the commands."""

    def __init__(self, size: int) -> None:
        self.size = size
        self._held: dict[str, Floats] = {}

    def put(self, name: str, values: Floats) -> None:
        """Set a vector's range."""
        self._held[name] = np.array(values, dtype=np.float64)

    def get(self, name: str) -> Floats:
        """Return a vector's range: for snapshots and checkpoints only."""
        return self._held[name]

    def accumulate(self, name: str, values: Floats) -> None:
        """Add what a volunteer sent to a vector's range."""
        self._held[name] = self._held[name] + values

    def zero(self, name: str) -> None:
        """Set a vector to zeros."""
        self._held[name] = np.zeros(self.size)

    def assign(self, target: str, factor: float, source: str) -> None:
        """``target = factor * source``."""
        self._held[target] = factor * self._held[source]

    def axpy(self, target: str, factor: float, source: str) -> None:
        """``target = target + factor * source``."""
        self._held[target] = self._held[target] + factor * self._held[source]

    def dot(self, one: str, other: str) -> float:
        """Return this range's part of a scalar product."""
        return float(np.dot(self._held[one], self._held[other]))

    def largest(self, name: str) -> float:
        """Return the largest absolute entry of this range."""
        return float(np.max(np.abs(self._held[name]), initial=0.0))

    def total(self, name: str) -> float:
        """Return the sum of absolute entries of this range."""
        return float(np.sum(np.abs(self._held[name])))

    def drop(self, name: str) -> None:
        """Forget a vector, if it is there."""
        self._held.pop(name, None)

    @property
    def names(self) -> tuple[str, ...]:
        """Names of the vectors."""
        return tuple(sorted(self._held))

    def save(self) -> State:
        """Return all ranges; none is changed in place later."""
        return State(dict(self._held), {})

    def load(self, state: State) -> None:
        """Take saved ranges; others are forgotten."""
        for name, values in state.tensors.items():
            if values.shape != (self.size,):
                raise unfit(f"vector {name} has another length")
        self._held = dict(state.tensors)

    def close(self) -> None:
        """Nothing is held that would have to end."""


class Vectors:
    """All shards as one; what a coordinator may call returns scalars only.

    Attributes:
        shards: their ranges, in order, make up a vector.
    """

    def __init__(
        self,
        size: int,
        count: int,
        open_shard: Callable[[int, int], Shard] | None = None,
    ) -> None:
        """Open `count` shards; `open_shard` is told a shard's number and its size."""
        if count < 1:
            raise UsageError("STO-T040", "vectors need at least one shard")
        edges = [size * number // count for number in range(count + 1)]
        self._edges = edges
        make = open_shard or (lambda _, size: LocalShard(size))
        sizes = [end - start for start, end in itertools.pairwise(edges)]
        self.shards = [make(number, size) for number, size in enumerate(sizes)]

    def dot(self, one: str, other: str) -> float:
        """Return a scalar product: the sum of what the shards give."""
        return math.fsum(shard.dot(one, other) for shard in self.shards)

    def largest(self, name: str) -> float:
        """Return the largest absolute entry."""
        return max(shard.largest(name) for shard in self.shards)

    def total(self, name: str) -> float:
        """Return the sum of absolute entries."""
        return math.fsum(shard.total(name) for shard in self.shards)

    def zero(self, name: str) -> None:
        """Set a vector to zeros."""
        for shard in self.shards:
            shard.zero(name)

    def assign(self, target: str, factor: float, source: str) -> None:
        """``target = factor * source``."""
        for shard in self.shards:
            shard.assign(target, factor, source)

    def axpy(self, target: str, factor: float, source: str) -> None:
        """``target = target + factor * source``."""
        for shard in self.shards:
            shard.axpy(target, factor, source)

    def drop(self, names: Iterable[str]) -> None:
        """Forget vectors."""
        for name in names:
            for shard in self.shards:
                shard.drop(name)

    def put(self, name: str, values: Floats) -> None:
        """Deal a whole vector out: at the start and from a checkpoint."""
        for shard, part in zip(self.shards, self._cut(values), strict=True):
            shard.put(name, part)

    def accumulate(self, name: str, values: Floats) -> None:
        """Deal an answer out to be added."""
        for shard, part in zip(self.shards, self._cut(values), strict=True):
            shard.accumulate(name, part)

    def gather(self, name: str) -> Floats:
        """Return a whole vector: for a snapshot or a checkpoint."""
        return np.concatenate([shard.get(name) for shard in self.shards])

    def save(self) -> State:
        """Return the states of all shards."""
        states = {f"shard{n}": shard.save() for n, shard in enumerate(self.shards)}
        return join_states(**states)

    def load(self, state: State) -> None:
        """Go on from the saved states of as many shards.

        Raises:
            UsageError: ``STO-T041`` when they were others.
        """
        if len(state.plain) != len(self.shards):
            raise unfit("its vectors lie in another number of shards")
        for number, shard in enumerate(self.shards):
            shard.load(select(state, f"shard{number}"))

    def close(self) -> None:
        """End all shards."""
        for shard in self.shards:
            shard.close()

    def _cut(self, values: Floats) -> Sequence[Floats]:
        return np.split(values, self._edges[1:-1])
