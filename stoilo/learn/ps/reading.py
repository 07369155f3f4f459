"""What a worker reads: cached copies, each with its own age, and its own updates.

Guarantee (SSP): a value holds all updates of iterations before ``clock - s`` by all live
workers, and all updates of the reader's own. The age belongs to the key, not to the
worker: one key that was fetched says nothing about another.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Generic, TypeVar

from stoilo.core.errors import UsageError
from stoilo.learn.ps.clock import VectorClock

__all__ = ["Cached", "CachedReader"]

V = TypeVar("V")


@dataclass(frozen=True, slots=True)
class Cached(Generic[V]):
    """A copy of a value.

    Attributes:
        value: as fetched, with the reader's own updates since.
        at: the server's time when it was fetched.
    """

    value: V
    at: int


@dataclass(slots=True)
class CachedReader(Generic[V]):
    """One worker's reads.

    Attributes:
        worker: whose clock says how old a copy may be.
        clock: the server's.
        fetch: returns values of several keys from the server.
        period: without a limit (ASP), iterations after which a copy is fetched anew.
        cached: copies by key.
    """

    worker: str
    clock: VectorClock
    fetch: Callable[[Sequence[str]], Mapping[str, V]]
    period: int = 1
    cached: dict[str, Cached[V]] = field(default_factory=dict)
    _fetched: dict[str, int] = field(default_factory=dict)

    def read(self, key: str) -> V:
        """Return a value that is new enough; see `read_many`."""
        return self.read_many([key])[key]

    def read_many(self, keys: Iterable[str]) -> dict[str, V]:
        """Return values that are new enough; those that are not come in one fetch.

        Raises:
            UsageError: ``STO-T066``, the worker is too far ahead to read at all: its
                iteration should not have been handed out.
        """
        if not self.clock.may_start(self.worker):
            raise UsageError(
                "STO-T066", f"worker {self.worker[:40]!r} must wait for the others"
            )
        wanted = tuple(keys)
        stale = [key for key in dict.fromkeys(wanted) if not self._is_kept(key)]
        at = self.clock.time  # before the fetch: others may commit meanwhile
        fetched = self.fetch(stale) if stale else {}
        for key in stale:
            self.cached[key] = Cached(fetched[key], at)
            self._fetched[key] = self.clock.clock_of(self.worker)
        return {key: self.cached[key].value for key in wanted}

    def note_own(self, changed: Mapping[str, Callable[[V], V]]) -> None:
        """Apply the worker's own updates to its copies: it reads what it wrote."""
        for key, change in changed.items():
            copy = self.cached.get(key)
            if copy is not None:
                self.cached[key] = Cached(change(copy.value), copy.at)

    def _is_kept(self, key: str) -> bool:
        copy = self.cached.get(key)
        return copy is not None and self._is_fresh(key, copy)

    def _is_fresh(self, key: str, copy: Cached[V]) -> bool:
        if self.clock.limit is None:
            age = self.clock.clock_of(self.worker) - self._fetched[key]
            return age < self.period
        return copy.at >= self.clock.need(self.worker)
