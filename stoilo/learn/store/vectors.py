"""Vectors that a batch optimiser calculates with in a shard: in memory, saved by generation.

This is DistBelief's way: the coordinator names vectors and issues dot products, sums and
scalings; each shard does them on its range, in double precision. The vectors of a training
are a *space*. Saving writes those that have changed, each once, under its digest; a
generation is the list of what a space held. A space that nobody saved ends with its process.
"""

from __future__ import annotations

import sqlite3
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from stoilo.audit.log.sqlite import damaged, transaction
from stoilo.core.digests import content_digest
from stoilo.core.errors import TrustError
from stoilo.learn.core.states import unfit
from stoilo.learn.core.tensors import Array
from stoilo.learn.store import protocol as p
from stoilo.learn.store import values

Floats = NDArray[np.float64]
# Generations that stay: a trainer may be killed between a shard's saving and its own.
KEPT = 4
SCHEMA = """
CREATE TABLE IF NOT EXISTS blob (digest TEXT PRIMARY KEY, body BLOB NOT NULL) STRICT;
CREATE TABLE IF NOT EXISTS vector (
    space TEXT, generation INTEGER, name TEXT, digest TEXT,
    PRIMARY KEY (space, generation, name)
) STRICT;
"""


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

    def do(self, command: p.OfSpace) -> object:
        """Return a command's answer; raises ``STO-T038`` for what makes no sense."""
        try:
            if isinstance(command, p.LoadGeneration):
                self._spaces[command.space] = self._read(command.space, command.number)
                return None
            return self._do(self._spaces[command.space], command)
        except (LookupError, ValueError, TypeError) as error:
            why = f"{type(error).__name__}: {error}"[:200]
            raise TrustError("STO-T038", f"a shard's vectors: {why}") from None

    def _do(self, space: _Space, command: p.OfSpace) -> object:
        match command:
            case p.PutRange(_, name, given, add):
                fresh = np.array(given, dtype=np.float64)
                if add:
                    fresh = _alike(space.held[name], fresh) + fresh
                _set(space, name, fresh)
            case p.GetRange(_, name):
                return space.held[name]
            case p.Calculate(_, what, words, factor):
                return _calculate(space, what, words, factor)
            case p.ListVectors():
                return sorted(space.held)
            case p.SaveGeneration(name):
                return self._write(name, space)
            case p.KeepGeneration():
                space.named = space.last
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
