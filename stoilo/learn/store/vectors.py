"""Vectors that lie in shards: commands go out, scalars come back, no vector travels.

This is DistBelief's way to run a batch optimiser: the coordinator names vectors and issues
dot products, sums and scalings; each shard does them on its range, in double precision.
"""

from __future__ import annotations

import hashlib
import itertools
import math
import os
import sqlite3
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from stoilo.audit.log.sqlite import connect, damaged, transaction
from stoilo.core.errors import TrustError, UsageError
from stoilo.learn.core.orders import State, join_states, read_int, select, unfit
from stoilo.learn.store.shards import take_lock

Floats = NDArray[np.float64]
# Generations that stay: a trainer may be killed between a shard's saving and its own.
KEPT = 4
_SCHEMA = """
CREATE TABLE IF NOT EXISTS vector (
    number INTEGER PRIMARY KEY, body BLOB NOT NULL, digest TEXT NOT NULL
) STRICT;
CREATE TABLE IF NOT EXISTS generation (
    number INTEGER NOT NULL, name TEXT NOT NULL, vector INTEGER NOT NULL,
    PRIMARY KEY (number, name)
) STRICT;
"""
_READ = """SELECT name, vector, body, digest FROM generation
JOIN vector ON vector.number = vector WHERE generation.number = ?"""


class VectorShard(Protocol):
    """A range of every vector, by name; each command acts on this range alone."""

    @property
    def size(self) -> int:
        """How many entries the range has."""

    def put(self, name: str, values: Floats, *, add: bool = False) -> None:
        """Set a vector's range, or add to it what a volunteer sent."""

    def get(self, name: str) -> Floats:
        """Return a vector's range: for snapshots only."""

    def do(self, command: str, words: list[str], factor: float = 1.0) -> float:
        """Calculate with vectors of these names; return a scalar, 0 where there is none.

        ``zero t`` · ``assign t s``: t = factor·s · ``axpy t s``: t = t + factor·s ·
        ``drop t`` · ``dot a b`` · ``largest a``: its largest absolute entry · ``total a``:
        the sum of its absolute entries.
        """

    def save(self) -> State:
        """Return what `load` needs: the ranges, or the generation of the shard's file."""

    def keep(self) -> None:
        """Let the generation that was saved last stay, however many come after it."""

    def load(self, state: State) -> None:
        """Go on from a saved state; what came later is forgotten."""

    def close(self) -> None:
        """End it."""


class LocalVectors:
    """A shard in this process.

    Args:
        size: entries of its range.
        path: of the file that `save` writes a generation of; None: `save` returns all.
    """

    def __init__(self, size: int, path: Path | None = None) -> None:
        self.size = size
        self._held: dict[str, Floats] = {}
        self._file = VectorFile(path) if path is not None else None
        self._generation = 0

    def put(self, name: str, values: Floats, *, add: bool = False) -> None:
        """Set a vector's range, or add to it."""
        if np.shape(values) != (self.size,):
            raise ValueError(f"{np.shape(values)} entries in a range of {self.size}")
        fresh = np.array(values, dtype=np.float64)
        self._held[name] = self._held[name] + fresh if add else fresh

    def get(self, name: str) -> Floats:
        """Return a vector's range."""
        return self._held[name]

    def do(self, command: str, words: list[str], factor: float = 1.0) -> float:
        """Calculate; see `VectorShard.do`."""
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
        """Return all ranges, or with a file its generation."""
        if self._file is None:
            return State(dict(self._held), {})
        self._generation = self._file.write(self._held)
        return State({}, {"generation": self._generation})

    def keep(self) -> None:
        """Let the generation that was saved last stay."""
        if self._file is not None:
            self._file.named = self._generation

    def load(self, state: State) -> None:
        """Take saved ranges; others are forgotten."""
        found = dict(state.tensors)
        if self._file is not None:
            self._generation = read_int(state.plain, "generation")
            found = self._file.read(self._generation)
        for name, values in found.items():
            if values.shape != (self.size,):
                raise unfit(f"vector {name} has another length")
        self._held = found

    def close(self) -> None:
        """Close the file, if there is one."""
        if self._file is not None:
            self._file.close()


class VectorFile:
    """Generations of a shard's vectors, each vector written once; one process uses it.

    Attributes:
        named: the generation that the trainer's checkpoint is known to name; it stays.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._lock = -1
        self._file: sqlite3.Connection | None = None
        self._written: dict[str, tuple[Floats, int]] = {}
        self.named = 0

    def write(self, vectors: dict[str, Floats]) -> int:
        """Write what is new of the vectors, all or nothing; return the generation."""
        file, written = self._open(), {}
        with damaged("shard of vectors"), transaction(file):
            last = file.execute("SELECT max(number) FROM generation").fetchone()[0]
            number = (last or 0) + 1
            for name, array in vectors.items():
                before = self._written.get(name)
                # By identity: no array is changed in place.
                if before is None or before[0] is not array:
                    row = file.execute(
                        "INSERT INTO vector (body, digest) VALUES (?, ?)",
                        (array.tobytes(), _digest(array.tobytes())),
                    )
                    before = array, row.lastrowid or 0
                written[name] = before
                file.execute(
                    "INSERT INTO generation VALUES (?, ?, ?)", (number, name, before[1])
                )
            file.execute(
                "DELETE FROM generation WHERE number <= ? AND number != ?",
                (number - KEPT, self.named),
            )
            file.execute(
                "DELETE FROM vector WHERE number NOT IN (SELECT vector FROM generation)"
            )
        self._written = written
        return number

    def read(self, number: int) -> dict[str, Floats]:
        """Return the vectors of a generation.

        Raises:
            TrustError: ``STO-T043`` when it is not there, or not as it was written.
        """
        found = {}
        with damaged("shard of vectors"):
            for name, row, body, digest in self._open().execute(_READ, (number,)):
                if _digest(body) != digest or len(body) % 8:
                    raise _unreadable(number)
                found[name] = np.frombuffer(body, np.float64), row
        if not found:
            raise _unreadable(number)
        self._written, self.named = found, number
        return {name: array for name, (array, _) in found.items()}

    def _open(self) -> sqlite3.Connection:
        """Open the file at its first use: a method that only estimates leaves it alone."""
        if self._file is None:
            self._path.parent.mkdir(parents=True, exist_ok=True)
            self._lock = take_lock(self._path.with_suffix(".lock"))
            with damaged("shard of vectors"):
                self._file = connect(self._path)
                self._file.executescript(_SCHEMA)
        return self._file

    def close(self) -> None:
        """Let the file go."""
        if self._file is not None:
            self._file.close()
        if self._lock >= 0:
            os.close(self._lock)
        self._file, self._lock = None, -1


def _digest(body: bytes) -> str:
    return hashlib.sha256(body).hexdigest()


def _unreadable(number: int) -> TrustError:
    return TrustError(
        "STO-T043", f"generation {number} of a shard's vectors cannot be read"
    )


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
