"""Vectors that lie in shards: commands go out, scalars come back, no vector travels.

This is DistBelief's way to run a batch optimiser: the coordinator names vectors and issues
dot products, sums and scalings; each shard does them on its range, in double precision.
"""

from __future__ import annotations

import itertools
import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import TypeVar, cast

import numpy as np
from numpy.typing import NDArray

from stoilo.core.errors import TrustError, UsageError
from stoilo.learn.core.checkpoint import Checkpoint
from stoilo.learn.core.states import (
    State,
    join_states,
    parse,
    render,
    select,
    unfit,
)
from stoilo.learn.core.tensors import Array
from stoilo.learn.store import protocol as p

Floats = NDArray[np.float64]
# Generations that stay: a trainer may be killed between a shard's saving and its own.
KEPT = 4
T = TypeVar("T")


class VectorShard(ABC):
    """A range of every vector, by name; each command acts on this range alone."""

    size: int  # how many entries the range has

    @abstractmethod
    def ask(self, command: p.Command[T]) -> T:
        """Return the answer to a command; raises ``STO-T038`` for what makes no sense."""

    @abstractmethod
    def close(self) -> None:
        """End it."""

    def put(self, name: str, values: Floats, *, add: bool = False) -> None:
        """Set a vector's range, or add to it what a volunteer sent."""
        self.ask(p.PutRange(name, np.asarray(values, np.float64), add))

    def get(self, name: str) -> Floats:
        """Return a vector's range: for snapshots only."""
        found = self.ask(p.GetRange(name))
        if found.shape != (self.size,):
            raise TrustError("STO-T038", f"a shard gave {found.size} entries of {name}")
        return found

    def do(self, command: str, words: list[str], factor: float = 1.0) -> float:
        """Calculate; see `Calculate`."""
        return self.ask(p.Calculate(command, words, factor))

    def save(self) -> State:
        """Return what `load` needs: the ranges, or the generation of the shard's files."""
        return State({}, {"generation": self.ask(p.SaveGeneration())})

    def keep(self) -> None:
        """Let the generation that was saved last stay, however many come after it."""
        self.ask(p.KeepGeneration())

    def load(self, state: State) -> None:
        """Go on from a saved state; what came later is forgotten."""
        generation = parse(state, dict[str, int]).get("generation", 0)
        self.ask(p.LoadGeneration(generation))


class LocalVectors(VectorShard):
    """A shard in this process.

    Args:
        size: entries of its range.
        folder: of the checkpoint that holds its generations; None: `save` returns all.
    """

    def __init__(self, size: int, folder: Path | None = None) -> None:
        self.size = size
        self._held: dict[str, Floats] = {}
        self._folder = folder
        self._checkpoint: Checkpoint | None = None
        # The last ones, and the one that the trainer's checkpoint is known to name
        self._generations: dict[int, dict[str, Floats]] = {}
        self._last = self._named = 0

    def ask(self, command: p.Command[T]) -> T:
        """Do a command; see `VectorShard.ask`."""
        try:
            return cast("T", self._do(command))
        except (LookupError, ValueError, TypeError) as error:
            why = f"{type(error).__name__}: {error}"[:200]
            raise TrustError("STO-T038", f"a shard of vectors: {why}") from None

    def _do(self, command: object) -> object:
        match command:
            case p.PutRange(name, values, add):
                if np.shape(values) != (self.size,):
                    raise ValueError(f"{np.shape(values)} entries, not {self.size}")
                fresh = np.array(values, dtype=np.float64)
                self._held[name] = self._held[name] + fresh if add else fresh
            case p.GetRange(name):
                return self._held[name]
            case p.Calculate(what, words, factor):
                return self._calculate(what, words, factor)
            case p.SaveGeneration():
                return self._write()
            case p.KeepGeneration():
                self._named = self._last
            case p.LoadGeneration(number):
                self._read(number)
            case _:
                raise TypeError("it does no such thing")
        return None

    def _calculate(self, command: str, words: list[str], factor: float) -> float:
        held = self._held
        match command, words:
            case "zero", [target]:
                held[target] = np.zeros(self.size)
            case "assign", [target, source]:
                held[target] = factor * held[source]
            case "axpy", [target, source]:
                # Never in place: what was saved must stay as it is.
                held[target] = held[target] + factor * held[source]
            case "drop", [target]:
                held.pop(target, None)
            case "dot", [one, other]:
                return float(np.dot(held[one], held[other]))
            case "largest", [name]:
                return float(np.max(np.abs(held[name]), initial=0.0))
            case "total", [name]:
                return float(np.sum(np.abs(held[name])))
            case _:
                raise ValueError(f"no command {command[:20]!r} of {len(words)} words")
        return 0.0

    def save(self) -> State:
        """Return all ranges, or with a folder their generation."""
        return render(self._held) if self._folder is None else super().save()

    def load(self, state: State) -> None:
        """Take saved ranges; others are forgotten."""
        if self._folder is None:
            self._take(parse(state, dict[str, Array]))
        else:
            super().load(state)

    def _take(self, found: dict[str, Array]) -> None:
        for name, values in found.items():
            if values.shape != (self.size,):
                raise unfit(f"vector {name} has another length")
        self._held = dict(found)

    def _write(self) -> int:
        """Write a generation: of its vectors, those that no other one has."""
        checkpoint = self._open()
        number = self._last + 1
        generations = {
            n: held
            for n, held in self._generations.items()
            if n > number - KEPT or n == self._named
        } | {number: dict(self._held)}
        checkpoint.write(render(generations))
        self._generations, self._last = generations, number
        return number

    def _read(self, number: int) -> None:
        self._open()
        if number not in self._generations:
            raise unfit(f"generation {number} of a shard's vectors is not there")
        self._take(self._generations[number])
        self._named = number

    def _open(self) -> Checkpoint:
        """Open the files at their first use: a method that only estimates has none."""
        if self._checkpoint is None:
            if self._folder is None:
                raise ValueError("a shard in memory has no generations")
            checkpoint = Checkpoint(self._folder)
            saved = checkpoint.open()
            if saved is not None:
                self._generations = parse(saved, dict[int, dict[str, Array]])
                self._last = max(self._generations)
            self._checkpoint = checkpoint
        return self._checkpoint

    def close(self) -> None:
        """Let the files go."""
        if self._checkpoint is not None:
            self._checkpoint.close()
        self._checkpoint = None


class Vectors:
    """All shards as one; what a coordinator may call returns scalars only.

    Attributes:
        shards: their ranges, in order, make up a vector.
    """

    def __init__(
        self,
        size: int,
        count: int,
        open_shard: Callable[[int, int], VectorShard] | None = None,
    ) -> None:
        """Open `count` shards; `open_shard` is told a shard's number and its size."""
        if count < 1:
            raise UsageError("STO-T040", "vectors need at least one shard")
        self._edges = [size * number // count for number in range(count + 1)]
        make = open_shard or (lambda _, size: LocalVectors(size))
        sizes = [end - start for start, end in itertools.pairwise(self._edges)]
        self.shards = [make(number, size) for number, size in enumerate(sizes)]

    def dot(self, one: str, other: str) -> float:
        """Return a scalar product: the sum of what the shards give."""
        return math.fsum(self._do("dot", [one, other]))

    def largest(self, name: str) -> float:
        """Return the largest absolute entry."""
        return max(self._do("largest", [name]))

    def total(self, name: str) -> float:
        """Return the sum of absolute entries."""
        return math.fsum(self._do("total", [name]))

    def zero(self, name: str) -> None:
        """Set a vector to zeros."""
        self._do("zero", [name])

    def assign(self, target: str, factor: float, source: str) -> None:
        """``target = factor * source``."""
        self._do("assign", [target, source], factor)

    def axpy(self, target: str, factor: float, source: str) -> None:
        """``target = target + factor * source``."""
        self._do("axpy", [target, source], factor)

    def drop(self, names: Iterable[str]) -> None:
        """Forget vectors."""
        for name in names:
            self._do("drop", [name])

    def _do(self, command: str, words: list[str], factor: float = 1.0) -> list[float]:
        return [shard.do(command, words, factor) for shard in self.shards]

    def put(self, name: str, values: Floats, *, add: bool = False) -> None:
        """Deal a whole vector out, to be set or to be added."""
        parts = np.split(values, self._edges[1:-1])
        for shard, part in zip(self.shards, parts, strict=True):
            shard.put(name, part, add=add)

    def gather(self, name: str) -> Floats:
        """Return a whole vector: for a snapshot or a checkpoint."""
        return np.concatenate([shard.get(name) for shard in self.shards])

    def save(self) -> State:
        """Return the states of all shards."""
        states = {f"shard{n}": shard.save() for n, shard in enumerate(self.shards)}
        return join_states(**states)

    def keep(self) -> None:
        """Let all shards keep what they saved last: the checkpoint names it."""
        for shard in self.shards:
            shard.keep()

    def load(self, state: State) -> None:
        """Go on from the saved states of as many shards.

        Raises:
            UsageError: ``STO-T012`` when they were others.
        """
        if len(state.plain) != len(self.shards):
            raise unfit("its vectors lie in another number of shards")
        for number, shard in enumerate(self.shards):
            shard.load(select(state, f"shard{number}"))

    def close(self) -> None:
        """End all shards."""
        for shard in self.shards:
            shard.close()
