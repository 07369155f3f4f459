"""Vectors that a batch optimiser calculates with in a shard: in memory, saved by generation.

This is DistBelief's way: the coordinator names vectors and issues dot products, sums and
scalings; each shard does them on its range, in double precision. The vectors of a training
are a *space*. Saving writes those that have changed, each once, under its digest; a
generation is the list of what a space held. A space that nobody saved ends with its process.
"""

from __future__ import annotations

import itertools
import math
import sqlite3
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol, TypeAlias, TypeVar

import msgspec
import numpy as np
from numpy.typing import NDArray

from stoilo.audit.log.sqlite import damaged, transaction
from stoilo.core.digests import content_digest
from stoilo.core.errors import TrustError, UsageError
from stoilo.learn.core.orders import Published
from stoilo.learn.core.states import State, parse, render, unfit
from stoilo.learn.core.tensors import Array, Tensors, forms_of
from stoilo.learn.store import protocol as p
from stoilo.learn.store import values

Floats = NDArray[np.float64]
# Of parameters: name → numpy's type and shape, in the order of a vector's entries
Forms: TypeAlias = Mapping[str, tuple[str, tuple[int, ...]]]
# Generations that stay: a trainer may be killed between a shard's saving and its own.
KEPT = 4
NORM = "norm"  # what stands for arrays that are at the shards: their length
T = TypeVar("T")
SCHEMA = """
CREATE TABLE IF NOT EXISTS blob (digest TEXT PRIMARY KEY, body BLOB NOT NULL) STRICT;
CREATE TABLE IF NOT EXISTS vector (
    space TEXT, generation INTEGER, name TEXT, digest TEXT,
    PRIMARY KEY (space, generation, name)
) STRICT;
"""


class Planted(msgspec.Struct, frozen=True):
    """A training's start at shards: what a process without parameters knows of it."""

    forms: dict[str, tuple[str, tuple[int, ...]]]  # of the parameters, see `Forms`
    # About the largest honest answer to `samples` (`stoilo.learn.driver.probing.Look`)
    norm: float | None = None
    samples: int = 1
    lacking: list[str] = []  # parameters that may have no gradient


def forms_of_arrays(tensors: Tensors) -> dict[str, tuple[str, tuple[int, ...]]]:
    """Return the form of each array, plainly."""
    return {name: (form.dtype, form.shape) for name, form in forms_of(tensors).items()}


def count_entries(forms: Forms) -> int:
    """Return how many entries all arrays have together."""
    return sum(math.prod(shape) for _, shape in forms.values())


@dataclass(slots=True)
class _Space:
    """A training's vectors; an array is never changed in place."""

    held: dict[str, Floats]
    digests: dict[str, str]  # of those that are in the file as they are
    last: int  # generation that was written last
    named: int  # the one that the trainer's checkpoint is known to name


class Spaces:
    """All spaces of a shard; whoever calls holds the shard's lock."""

    def __init__(self) -> None:
        self.file: sqlite3.Connection | None = None  # the shard's, when it has one
        self._spaces: dict[str, _Space] = {}

    def leave(self, space: str) -> None:
        """Forget a space's vectors; what was saved stays."""
        self._spaces.pop(space, None)

    def do(self, command: p.OfSpace[object]) -> object:
        """Return a command's answer; raises ``STO-T038`` for what makes no sense."""
        try:
            if isinstance(command, p.LoadGeneration):
                self._spaces[command.space] = self._read(command.space, command.number)
                return None
            return self._do(self._spaces[command.space], command)
        except (LookupError, ValueError, TypeError) as error:
            why = f"{type(error).__name__}: {error}"[:200]
            raise TrustError("STO-T038", f"a shard's vectors: {why}") from None

    def _do(self, space: _Space, command: p.OfSpace[object]) -> object:
        match command:
            case p.PutRange(_, name, given):
                _set(space, name, np.array(given, dtype=np.float64))
            case p.GetRange(_, name):
                return space.held[name]
            case p.Calculate(_, what, words, factor):
                return _calculate(space, what, words, factor)
            case p.RoundRange(_, name, kinds):
                rounded = _round(space.held[name], kinds)
                _set(space, name, rounded.astype(np.float64))
                return rounded
            case p.ListVectors():
                return sorted(space.held)
            case p.SaveGeneration(name):
                return self._write(name, space)
            case p.KeepGeneration():
                space.named = space.last
            case _:
                raise ValueError("this shard knows no project")
        return None

    def _write(self, name: str, space: _Space) -> int:
        """Write a generation: of its vectors, those that the file has not."""
        if self.file is None:
            return 0
        number, blobs = space.last + 1, list[tuple[str, bytes]]()
        for vector in space.held.keys() - space.digests.keys():
            body = values.encode(space.held[vector])
            space.digests[vector] = content_digest(body)
            blobs.append((space.digests[vector], body))
        rows = [(name, number, *item) for item in sorted(space.digests.items())]
        with damaged("parameter shard"), transaction(self.file):
            self.file.executemany("INSERT OR IGNORE INTO blob VALUES (?, ?)", blobs)
            self.file.executemany("INSERT INTO vector VALUES (?, ?, ?, ?)", rows)
            old = "space = ? AND generation <= ? AND generation <> ?"
            self.file.execute(
                f"DELETE FROM vector WHERE {old}",  # noqa: S608 - a text of ours
                (name, number - KEPT, space.named),
            )
            self.file.execute(
                "DELETE FROM blob WHERE digest NOT IN (SELECT digest FROM vector)"
            )
        space.last = number
        return number

    def _read(self, name: str, number: int) -> _Space:
        number = self._find_last(name) if number == p.NEWEST else number
        if self.file is None:
            rows = []
        else:
            with damaged("parameter shard"):
                rows = self.file.execute(
                    "SELECT generation, name, vector.digest, body FROM vector"
                    " LEFT JOIN blob ON blob.digest = vector.digest"
                    " WHERE space = ? AND generation = ?",
                    (name, number),
                ).fetchall()
        if number and not rows:
            raise unfit(f"generation {number} of a shard's vectors is not there")
        held = {vector: _checked(digest, body) for _, vector, digest, body in rows}
        digests = {vector: digest for _, vector, digest, _ in rows}
        return _Space(held, digests, self._find_last(name), number)

    def _find_last(self, name: str) -> int:
        if self.file is None:
            return 0
        last = "SELECT max(generation) FROM vector WHERE space = ?"
        with damaged("parameter shard"):
            return self.file.execute(last, (name,)).fetchone()[0] or 0


def _checked(digest: str, body: bytes | None) -> Floats:
    if body is None or content_digest(body) != digest:
        raise TrustError("STO-T011", "a shard's vector is damaged")
    return np.asarray(values.decode(body, Array), np.float64)


def _round(part: Floats, kinds: Sequence[tuple[str, int]]) -> Array:
    """Return entries as arrays of these types hold them, in the widest of them."""
    ends = np.cumsum([count for _, count in kinds])
    if not kinds or ends[-1] != part.size:
        raise ValueError(f"{part.size} entries and types of others")
    parts = np.split(part, ends[:-1])
    return np.concatenate([x.astype(k) for x, (k, _) in zip(parts, kinds, strict=True)])


def _set(space: _Space, name: str, fresh: Floats) -> None:
    space.held[name] = fresh
    space.digests.pop(name, None)


def _alike(one: Floats, other: Floats) -> Floats:
    """Return `one`; numpy would spread vectors of different lengths."""
    if one.shape != other.shape:
        raise ValueError(f"{one.shape} entries and {other.shape}")
    return one


def _calculate(space: _Space, command: str, words: list[str], factor: float) -> float:
    held = space.held
    match command, words:
        case "zero", [target, source]:
            _set(space, target, np.zeros_like(held[source]))
        case "assign", [target, source]:
            _set(space, target, factor * held[source])
        case "axpy", [target, source]:
            moved = _alike(held[target], held[source]) + factor * held[source]
            _set(space, target, moved)
        case "drop", [target]:
            held.pop(target, None)
            space.digests.pop(target, None)
        case "dot", [one, other]:
            return float(np.dot(_alike(held[one], held[other]), held[other]))
        case "largest", [name]:
            return float(np.max(np.abs(held[name]), initial=0.0))
        case "total", [name]:
            return float(np.sum(np.abs(held[name])))
        case _:
            raise ValueError(f"no command {command[:20]!r} of {len(words)} words")
    return 0.0


class Asked(Protocol):
    """Whoever answers a shard's commands."""

    def ask(self, command: p.Command[T]) -> T:
        """Return the answer."""


class Vectors:
    """Vectors that lie in all shards as one: commands go out, scalars come back.

    What a coordinator may call moves no vector; `put` and `gather` do.
    """

    def __init__(
        self,
        size: int,  # entries of each vector
        shards: Sequence[Asked],  # their ranges, in this order, make up a vector
        space: str = "vectors",  # what the shards call them together
    ) -> None:
        """Begin the space, empty."""
        if not shards:
            raise UsageError("STO-T040", "vectors need at least one shard")
        self.shards, self._space = tuple(shards), space
        count = len(shards)
        self._edges = [size * number // count for number in range(count + 1)]
        self._ranges = list(itertools.pairwise(self._edges))
        self._begin([0] * count)

    def _begin(self, generations: Sequence[int]) -> None:
        for shard, number in zip(self.shards, generations, strict=True):
            shard.ask(p.LoadGeneration(self._space, number))

    def dot(self, one: str, other: str) -> float:
        """Return a scalar product: the sum of what the shards give."""
        return math.fsum(self._do("dot", one, other))

    def norm(self, name: str) -> float:
        """Return the Euclidean length; infinite where squares are too large."""
        return math.sqrt(self.dot(name, name))

    def largest(self, name: str) -> float:
        """Return the largest absolute entry."""
        return max(self._do("largest", name))

    def total(self, name: str) -> float:
        """Return the sum of absolute entries."""
        return math.fsum(self._do("total", name))

    def zero(self, name: str, like: str) -> None:
        """Set a vector to as many zeros as another one has entries."""
        self._do("zero", name, like)

    def assign(self, target: str, factor: float, source: str) -> None:
        """``target = factor * source``."""
        self._do("assign", target, source, factor=factor)

    def axpy(self, target: str, factor: float, source: str) -> None:
        """``target = target + factor * source``."""
        self._do("axpy", target, source, factor=factor)

    def drop(self, names: Iterable[str]) -> None:
        """Forget vectors."""
        for name in names:
            self._do("drop", name)

    def _do(self, command: str, *words: str, factor: float = 1.0) -> list[float]:
        asked = p.Calculate(self._space, command, list(words), factor)
        return [shard.ask(asked) for shard in self.shards]

    def put(self, name: str, whole: Array) -> None:
        """Deal a whole vector out."""
        parts = np.split(np.asarray(whole, np.float64), self._edges[1:-1])
        for shard, part in zip(self.shards, parts, strict=True):
            shard.ask(p.PutRange(self._space, name, part))

    def publish(self, name: str, forms: Forms) -> Published:
        """Let the shards round a vector and store it at the project, as parameters."""
        sizes = [(kind, math.prod(shape)) for kind, shape in forms.values()]
        found, keys = list[tuple[str, int]](), [f"{n}" for n in range(len(self.shards))]
        for key, shard, ends in zip(keys, self.shards, self._ranges, strict=True):
            kinds = _cut_kinds(sizes, *ends)
            one = shard.ask(p.PublishRange(self._space, name, key, kinds))
            found.append((one.tag, one.size))
        return Published(tuple(found), tuple(keys), forms)

    def take(
        self, name: str, task: str, forms: Forms, about: Mapping[str, Any]
    ) -> p.Taken:
        """Let the shards fetch an answer from the project, as a vector of that name.

        Raises:
            TrustError: ``STO-T038``, they do not agree about it.
        """
        found = [
            shard.ask(
                p.TakeAnswer(self._space, name, task, *ends, dict(forms), **about)
            )
            for shard, ends in zip(self.shards, self._ranges, strict=True)
        ]
        if any(one != found[0] for one in found):
            raise TrustError("STO-T038", "shards were given different answers")
        return found[0]

    def gather(self, name: str) -> Array:
        """Return a whole vector: for a snapshot or a checkpoint."""
        parts = [shard.ask(p.GetRange(self._space, name)) for shard in self.shards]
        if [len(part) for part in parts] != [
            end - start for start, end in self._ranges
        ]:
            raise TrustError("STO-T038", f"shards gave other ranges of {name[:40]!r}")
        return np.concatenate(parts)

    def save(self) -> State:
        """Return the generations of the shards' files; without files, all vectors."""
        numbers = [shard.ask(p.SaveGeneration(self._space)) for shard in self.shards]
        if all(numbers):
            return State({}, {"shards": len(numbers), "generations": list(numbers)})
        names = self.shards[0].ask(p.ListVectors(self._space))
        held = {name: self.gather(name) for name in names}
        return render({"shards": len(numbers), "held": held})

    def begin_newest(self) -> None:
        """Go on from what each shard saved last: nobody saves meanwhile."""
        self._begin([p.NEWEST] * len(self.shards))

    def keep(self) -> None:
        """Let all shards keep what they saved last: the checkpoint names it."""
        for shard in self.shards:
            shard.ask(p.KeepGeneration(self._space))

    def load(self, state: State) -> None:
        """Go on from the saved state of as many shards; what came later is forgotten.

        Raises:
            UsageError: ``STO-T012`` when they were others.
        """
        saved = parse(state, _Saved)
        if saved.shards != len(self.shards):
            raise unfit("its vectors lie in another number of shards")
        self._begin(saved.generations or [0] * saved.shards)
        for name, whole in saved.held.items():
            if whole.shape != (self._edges[-1],):
                raise unfit(f"vector {name} has another length")
            self.put(name, whole)


def _cut_kinds(
    sizes: Iterable[tuple[str, int]], start: int, stop: int
) -> list[tuple[str, int]]:
    """Return the types of the entries from `start` to `stop`, and how many of each."""
    found, at = list[tuple[str, int]](), 0
    for kind, size in sizes:
        inside = min(at + size, stop) - max(at, start)
        at += size
        if inside > 0:
            found.append((kind, inside))
    return found


class _Saved(msgspec.Struct):
    """What `Vectors` saves: one of the two."""

    shards: int
    generations: list[int] = []
    held: dict[str, Array] = {}
