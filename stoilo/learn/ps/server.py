"""The parameter server: shards on a ring behind one door."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Self

from stoilo.core.errors import UsageError
from stoilo.learn.ps.functions import UpdateFunction
from stoilo.learn.ps.ring import Ring
from stoilo.learn.ps.shards import Cell, Push, Shard
from stoilo.learn.ps.values import Value

__all__ = ["ParameterServer"]


class ParameterServer:
    """Reads and pushes over many shards.

    A push over several shards is applied shard by shard: after a crash in between, the
    same push again does what is missing and no more. Moving of keys is done before
    anything is served, and again at the next opening when it was cut off.
    """

    def __init__(self, shards: Mapping[str, Shard]) -> None:
        """Serve `shards` (by name); settle which of them keeps what."""
        self._shards = dict(shards)
        self.ring = Ring(tuple(self._shards))
        self._settle()

    @classmethod
    def open(
        cls, folder: Path, count: int, functions: Iterable[UpdateFunction] = ()
    ) -> Self:
        """Open `count` shards in `folder`; keys move when the count has changed.

        Shards that are there and no longer wanted are emptied into the others.
        """
        folder.mkdir(parents=True, exist_ok=True)
        known = tuple(functions)
        wanted = [f"shard{index}" for index in range(count)]
        names = sorted({path.stem for path in folder.glob("shard*.db")} | set(wanted))
        shards = _open_shards(folder, names, known)
        server = cls({name: shards[name] for name in wanted})
        for name in names:
            if name not in wanted:
                server._move(shards[name], shards[name].list_keys())
                shards[name].close()
        return server

    def close(self) -> None:
        """Close all shards."""
        for shard in self._shards.values():
            shard.close()

    def list_keys(self) -> tuple[str, ...]:
        """Return all keys, sorted."""
        return tuple(sorted(k for s in self._shards.values() for k in s.list_keys()))

    def create(self, values: Mapping[str, Value]) -> None:
        """Make what is not there yet."""
        for name, keys in self.ring.group(values).items():
            self._shards[name].create({key: values[key] for key in keys})

    def read(self, keys: Iterable[str]) -> dict[str, Cell]:
        """Return cells; those of different shards may be of different moments."""
        wanted = tuple(keys)
        found: dict[str, Cell] = {}
        for name, part in self.ring.group(wanted).items():
            found.update(self._shards[name].read(part))
        return {key: found[key] for key in wanted}

    def push(self, push: Push) -> int:
        """Apply a push, once however often it comes; return how many cells changed.

        When this returns, all of it is kept. When it raises or the process dies, the
        same push may be sent again.
        """
        by_key = {change.key: change for change in push.changes}
        changed = 0
        for name, keys in self.ring.group(by_key).items():
            part = [by_key[key] for key in keys]
            changed += self._shards[name].apply(Push(push.source, push.sequence, part))
        return changed

    def check_known(self, run: str, keys: Iterable[str]) -> None:
        """Raise ``STO-T036`` when no cell remembers a push of `run`: it may count twice."""
        marks = (m for cell in self.read(keys).values() for m in cell.marks)
        if not any(mark.startswith(f"{run}/") for mark in marks):
            raise UsageError(
                "STO-T036", "the parameter server has forgotten the pushes of this run"
            )

    def _settle(self) -> None:
        for name, shard in self._shards.items():
            self._move(
                shard, [k for k in shard.list_keys() if self.ring.owner(k) != name]
            )

    def _move(self, shard: Shard, keys: Iterable[str]) -> None:
        """Give cells to their owners, then forget them: a crash leaves two, never none."""
        cells = shard.read(keys)
        for name, part in self.ring.group(cells).items():
            owner = self._shards[name]
            there = set(owner.list_keys())
            owner.accept({key: cells[key] for key in part if key not in there})
        shard.drop(cells)


def _open_shards(
    folder: Path, names: Iterable[str], functions: tuple[UpdateFunction, ...]
) -> dict[str, Shard]:
    """Open all, or none."""
    found: dict[str, Shard] = {}
    try:
        for name in names:
            found[name] = Shard(folder / f"{name}.db", functions)
    except BaseException:
        for shard in found.values():
            shard.close()
        raise
    return found
