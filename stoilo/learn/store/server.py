"""The parameter server: shards on a ring behind one door."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor, wait
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import Self, TypeVar

from stoilo.core.errors import UsageError
from stoilo.learn.store.functions import UpdateFunction, built_in
from stoilo.learn.store.remote import RemoteShard
from stoilo.learn.store.ring import Ring, settle
from stoilo.learn.store.shards import Cell, LocalShard, Push, Shard
from stoilo.learn.store.values import Value


T = TypeVar("T")
MakeShard = Callable[[Path, tuple[UpdateFunction, ...]], Shard]


class ParameterServer:
    """Reads and pushes over many shards.

    A push over several shards is applied shard by shard: after a crash in between, the
    same push again does what is missing and no more. Moving of keys is done before
    anything is served, and again at the next opening when it was cut off.

    With several copies of each key, what was acknowledged outlasts the loss of all files
    but one of those that keep it: the next opening makes the copies anew.
    """

    def __init__(
        self,
        shards: Mapping[str, Shard],
        functions: Iterable[UpdateFunction] = (),
        *,
        copies: int = 1,
        leaving: Mapping[str, Shard] | None = None,
    ) -> None:
        """Serve `shards` (by name); settle which of them keeps what.

        Args:
            shards: each of them knows `functions`.
            functions: update functions besides the built-in ones.
            copies: on how many shards each key is.
            leaving: further shards, to be emptied into these.

        Raises:
            UsageError: ``STO-T067`` without shards, or for more copies than those.
        """
        if not 1 <= copies <= max(1, len(shards)):
            raise UsageError(
                "STO-T067", f"{copies} copies cannot be kept on {len(shards)} shards"
            )
        self.copies = copies
        self._shards = dict(shards)
        self.functions = {**built_in(), **{f.name: f for f in functions}}
        self.ring = Ring(tuple(self._shards))
        self._pool = ThreadPoolExecutor(len(self._shards), thread_name_prefix="shard")
        settle(self._shards, leaving or {}, self.ring, copies)

    @classmethod
    def open(
        cls,
        folder: Path,
        count: int,
        functions: Iterable[UpdateFunction] = (),
        *,
        processes: bool = False,
        copies: int = 1,
        make: MakeShard | None = None,
    ) -> Self:
        """Open `count` shards in `folder`; keys move when the count has changed.

        Shards that are there and no longer wanted are emptied into the others.

        Args:
            folder: of the shards' files.
            count: how many shards.
            functions: update functions besides the built-in ones.
            processes: each shard in a process of its own, started again when it dies;
                otherwise in this one.
            copies: on how many shards each key is; pushes are in when all have them.
            make: opens a shard; in place of `processes`.
        """
        folder.mkdir(parents=True, exist_ok=True)
        known, make = (
            tuple(functions),
            make or (RemoteShard if processes else LocalShard),
        )
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
            server = cls(staying, known, copies=copies, leaving=leaving)
            failing.pop_all()
        for shard in leaving.values():
            shard.close()
        return server

    def close(self) -> None:
        """Close all shards."""
        for shard in self._shards.values():
            shard.close()
        self._pool.shutdown()

    @property
    def shards(self) -> Mapping[str, Shard]:
        """The shards by name."""
        return dict(self._shards)

    def list_keys(self) -> tuple[str, ...]:
        """Return all keys, sorted."""
        found = self._each([shard.list_keys for shard in self._shards.values()])
        return tuple(sorted({key for keys in found for key in keys}))

    def create(self, values: Mapping[str, Value]) -> None:
        """Make what is not there yet."""
        calls = []
        for name, keys in self.ring.group(values, self.copies).items():
            part = {key: values[key] for key in keys}
            calls.append(partial(self._shards[name].create, part))
        self._each(calls)

    def read(self, keys: Iterable[str]) -> dict[str, Cell]:
        """Return cells; those of different shards may be of different moments."""
        wanted = tuple(keys)
        groups = self.ring.group(dict.fromkeys(wanted))
        calls = [partial(self._shards[n].read, part) for n, part in groups.items()]
        found: dict[str, Cell] = {}
        for cells in self._each(calls):
            found |= cells
        return {key: found[key] for key in wanted}

    def push(self, push: Push) -> int:
        """Apply a push, once however often it comes; return how many copies changed.

        When this returns, all of it is kept. When it raises or the process dies, the
        same push may be sent again.
        """
        by_key = {change.key: change for change in push.changes}
        calls = []
        for name, keys in self.ring.group(by_key, self.copies).items():
            part = Push(push.source, push.sequence, [by_key[key] for key in keys])
            calls.append(partial(self._shards[name].apply, part))
        return sum(self._each(calls))

    def _each(self, calls: Sequence[Callable[[], T]]) -> list[T]:
        """Call several shards at once; when one raises, the others have ended."""
        if len(calls) == 1:
            return [calls[0]()]
        work = [self._pool.submit(call) for call in calls]
        # All have ended before one may raise: no push goes on behind the error.
        wait(work)
        return [one.result() for one in work]

    def check_known(self, run: str, keys: Iterable[str]) -> None:
        """Raise ``STO-T036`` when no cell remembers a push of `run`: it may count twice."""
        marks = (m for cell in self.read(keys).values() for m in cell.marks)
        if not any(mark.startswith(f"{run}/") for mark in marks):
            raise UsageError(
                "STO-T036", "the parameter server has forgotten the pushes of this run"
            )
