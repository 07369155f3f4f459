"""The parameter server: shards on a ring behind one door."""

from __future__ import annotations

import bisect
import hashlib
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor, wait
from contextlib import ExitStack
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Self, TypeVar

from stoilo.client.capture.arguments import StoredValue
from stoilo.core.errors import UsageError
from stoilo.learn.store import protocol as p
from stoilo.learn.store.functions import built_in
from stoilo.learn.store.place import ShardPlace
from stoilo.learn.store.protocol import Cell, Push
from stoilo.learn.store.remote import RemoteShard
from stoilo.learn.store.shards import LocalShard, Shard, Updater
from stoilo.learn.store.values import Value
from stoilo.learn.store.vectors import Vectors

POINTS = 128  # points of each shard: with 100 and more, loads differ by about a tenth


def _place(text: str) -> int:
    return int.from_bytes(hashlib.sha256(text.encode()).digest()[:8], "big")


@dataclass(frozen=True, slots=True)
class Ring:
    """Shards by name; the same names give the same ring, in any order."""

    shards: tuple[str, ...]  # their names, sorted
    points: int = POINTS  # how often each stands on the circle
    _places: tuple[int, ...] = field(init=False, repr=False, compare=False)
    _owners: tuple[str, ...] = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        if not self.shards or len(set(self.shards)) != len(self.shards):
            raise UsageError("STO-T040", "a ring needs shards with different names")
        object.__setattr__(self, "shards", tuple(sorted(self.shards)))
        marks = sorted(
            (_place(f"{shard}#{index}"), shard)
            for shard in self.shards
            for index in range(self.points)
        )
        object.__setattr__(self, "_places", tuple(place for place, _ in marks))
        object.__setattr__(self, "_owners", tuple(shard for _, shard in marks))

    def owner(self, key: str) -> str:
        """Return the name of the shard that keeps `key`."""
        index = bisect.bisect_right(self._places, _place(key))
        return self._owners[index % len(self._owners)]

    def group(self, keys: Iterable[str]) -> dict[str, list[str]]:
        """Return the keys by the shards that keep them, in the order given."""
        found: dict[str, list[str]] = {}
        for key in keys:
            found.setdefault(self.owner(key), []).append(key)
        return found


_AT_ONCE = 64  # keys in memory at a time


def settle(
    shards: Mapping[str, Shard], leaving: Mapping[str, Shard], ring: Ring
) -> None:
    """Put every cell of `shards` and `leaving` where `ring` says.

    A move that was cut off leaves a cell twice: the one with more updates is kept.
    """
    every = {**shards, **leaving}
    held = {name: set(shard.list_keys()) for name, shard in every.items()}
    for name, shard in every.items():
        misplaced = sorted(key for key in held[name] if ring.owner(key) != name)
        for start in range(0, len(misplaced), _AT_ONCE):
            _give(shard.read(misplaced[start : start + _AT_ONCE]), shards, held, ring)
        if misplaced:
            shard.drop(misplaced)


def _give(
    cells: Mapping[str, Cell],
    shards: Mapping[str, Shard],
    held: Mapping[str, set[str]],
    ring: Ring,
) -> None:
    for name, keys in ring.group(cells).items():
        there = shards[name].read([key for key in keys if key in held[name]])
        best = {
            key: cells[key]
            for key in keys
            if key not in there or there[key].version < cells[key].version
        }
        if best:
            # Given before anything is dropped: a crash leaves one too many, never none.
            shards[name].accept(best)
            held[name].update(best)


T = TypeVar("T")
V = TypeVar("V")
MakeShard = Callable[[Path, tuple[Updater, ...]], Shard]


class ParameterServer:
    """Reads and pushes over many shards.

    A push over several shards is applied shard by shard: after a crash in between, the
    same push again does what is missing and no more. Moving of keys is done before
    anything is served, and again at the next opening when it was cut off.
    """

    def __init__(
        self,
        shards: Mapping[str, Shard],  # each of them knows `functions`
        # Update functions and optimisers besides the built-in ones
        functions: Iterable[Updater] = (),
        *,
        # Further shards, to be emptied into these
        leaving: Mapping[str, Shard] | None = None,
    ) -> None:
        """Serve `shards` (by name); settle which of them keeps what.

        Raises:
            UsageError: ``STO-T040`` without shards.
        """
        self._shards = dict(shards)
        self.functions: dict[str, Updater] = {
            **built_in(),
            **{f.name: f for f in functions},
        }
        self.ring = Ring(tuple(self._shards))
        self._pool = ThreadPoolExecutor(len(self._shards), thread_name_prefix="shard")
        settle(self._shards, leaving or {}, self.ring)

    @classmethod
    def open(
        cls,
        folder: Path,  # of the shards' files
        count: int,  # how many shards
        # Update functions and optimisers besides the built-in ones
        functions: Iterable[Updater] = (),
        *,
        # Each shard in a process of its own, started again when it dies; otherwise in
        # this one
        processes: bool = False,
        make: MakeShard | None = None,  # opens a shard; in place of `processes`
    ) -> Self:
        """Open `count` shards in `folder`; keys move when the count has changed.

        Shards that are there and no longer wanted are emptied into the others.
        """
        folder.mkdir(parents=True, exist_ok=True)
        known = tuple(functions)
        make = make or (RemoteShard if processes else LocalShard)
        wanted = [f"shard{index}" for index in range(count)]
        names = sorted({path.stem for path in folder.glob("shard*.db")} | set(wanted))
        with ExitStack() as failing:
            shards = {}
            for name in names:
                shards[name] = make(folder / f"{name}.db", known)
                # One that does not open must not leave the others' processes running.
                failing.callback(shards[name].close)
            leaving = {n: shard for n, shard in shards.items() if n not in wanted}
            staying = {name: shards[name] for name in wanted}
            server = cls(staying, known, leaving=leaving)
            failing.pop_all()
        for shard in leaving.values():
            shard.close()
        return server

    @classmethod
    def connect(
        cls,
        places: Sequence[ShardPlace],  # the shards on the network, always in this order
        # Update functions and optimisers besides the built-in ones
        functions: Iterable[Updater] = (),
        *,
        # How long to wait for a shard that is being started again, each of five times
        patience_s: float = 60.0,
    ) -> Self:
        """Open shards that `stoilo learn shard` serves; others may have them open, too.

        Raises:
            DeniedError: ``STO-R001``, a token is not the shard's.
            TrustError: ``STO-T038``, an address answers with another certificate.
            UnreachableError: ``STO-T037``, nobody answers.
        """
        known = tuple(functions)
        shards = {
            f"shard{index}": RemoteShard(place, known, takeover_s=patience_s)
            for index, place in enumerate(places)
        }
        try:
            return cls(shards, known)
        except BaseException:
            for shard in shards.values():
                shard.close()
            raise

    def close(self) -> None:
        """Close all shards."""
        for shard in self._shards.values():
            shard.close()
        self._pool.shutdown()

    @property
    def shards(self) -> Mapping[str, Shard]:
        """The shards by name."""
        return dict(self._shards)

    def vectors(self, size: int, space: str) -> Vectors:
        """Begin vectors of `size` entries, in ranges over all shards; see `Vectors`."""
        return Vectors(size, tuple(self._shards.values()), space)

    def list_keys(self) -> tuple[str, ...]:
        """Return all keys, sorted."""
        found = self._each([shard.list_keys for shard in self._shards.values()])
        return tuple(sorted({key for keys in found for key in keys}))

    def create(self, values: Mapping[str, Value]) -> None:
        """Make what is not there yet."""
        self._deal(values, p.CreateCells)

    def read(self, keys: Iterable[str]) -> dict[str, Cell]:
        """Return cells; those of different shards may be of different moments."""
        return self._gather(dict.fromkeys(keys), lambda k: p.ReadCells([*k]))

    def read_tagged(self, known: Mapping[str, str]) -> dict[str, p.Tagged]:
        """Return versions by their tags; without the value where `known` has the tag."""
        return self._gather(known, p.ReadTagged)

    def publish(self, keys: Iterable[str]) -> dict[str, StoredValue]:
        """Let the shards store the present versions at their project; return the handles.

        A task may name a handle of an own connection of the same account in the value's
        place: the bytes went from the shard to the project, not through this process.

        Raises:
            UsageError: ``STO-C045``, a shard has no project.
        """
        found = self._gather(dict.fromkeys(keys), lambda k: p.PublishCells([*k]))
        return {key: StoredValue(one.tag, one.size) for key, one in found.items()}

    def publish_together(
        self, keys: Iterable[str]
    ) -> dict[tuple[str, ...], StoredValue]:
        """Do what `publish` does with one blob a shard, by the keys that it holds."""
        groups = [*self.ring.group(dict.fromkeys(keys)).items()]
        found = self._each([
            partial(self._shards[name].ask, p.PublishCells(held, together=True))
            for name, held in groups
        ])  # fmt: skip
        return {
            tuple(held): StoredValue(one[""].tag, one[""].size)
            for (_, held), one in zip(groups, found, strict=True)
        }

    def push(self, push: Push) -> int:
        """Apply a push, once however often it comes; return how many cells changed.

        When this returns, all of it is kept. When it raises or the process dies, the
        same push may be sent again.
        """
        by_key = {change.key: change for change in push.changes}
        source, number = push.source, push.sequence
        return sum(
            self._deal(
                by_key, lambda part: p.ApplyPush(Push(source, number, [*part.values()]))
            )
        )

    def _deal(
        self, given: Mapping[str, V], make: Callable[[dict[str, V]], p.Command[T]]
    ) -> list[T]:
        """Ask each shard for what is given under its keys."""
        calls = []
        for name, keys in self.ring.group(given).items():
            command = make({key: given[key] for key in keys})
            calls.append(partial(self._shards[name].ask, command))
        return self._each(calls)

    def _gather(
        self,
        given: Mapping[str, V],
        make: Callable[[dict[str, V]], p.Command[dict[str, T]]],
    ) -> dict[str, T]:
        """Return the answers of `_deal` as one, in the order of the keys."""
        parts = self._deal(given, make)
        found = {key: one for part in parts for key, one in part.items()}
        return {key: found[key] for key in given}

    def _each(self, calls: Sequence[Callable[[], T]]) -> list[T]:
        """Call several shards at once; when one raises, the others have ended."""
        if len(calls) == 1:
            return [calls[0]()]
        work = [self._pool.submit(call) for call in calls]
        # All have ended before one may raise: no push goes on behind the error.
        wait(work)
        return [one.result() for one in work]

    def check_known(self, run: str, keys: Iterable[str]) -> None:
        """Raise ``STO-T012`` when no cell remembers a push of `run`: it may count twice."""
        marks = (m for cell in self.read(keys).values() for m in cell.marks)
        if not any(mark.startswith(f"{run}/") for mark in marks):
            raise UsageError(
                "STO-T012", "the parameter server has forgotten the pushes of this run"
            )
