"""A shard that is elsewhere, as a shard: what is behind a `Client`.

Requests for cells may be repeated without harm (pushes carry marks), so one whose answer did
not come is sent again to the next process: what was acknowledged is in the shard's file.
Vectors are calculated with in memory; those of a process that has died are lost, and the
training goes on from its checkpoint.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeVar, cast

from stoilo.core.errors import TrustError
from stoilo.learn.store import protocol as p
from stoilo.learn.store.client import PROGRAM, ChildProcess, Client, NetworkPeer
from stoilo.learn.store.place import ShardPlace
from stoilo.learn.store.shards import Shard, Updater
from stoilo.learn.store.values import encode

T = TypeVar("T")
V = TypeVar("V")


class RemoteShard(Shard):
    """A shard that may be killed."""

    def __init__(
        self,
        where: Path | ShardPlace,  # the shard's file, or where a machine serves one
        # Update functions besides the built-in ones
        functions: Iterable[Updater] = (),
        *,
        lives: int = 5,  # how many processes (streams) one request may use up
        # How long a shard may take for one request before it is given up
        limit_s: float = 60.0,
        # How long to wait for the file of a server that was killed, and for a machine
        # that does not listen
        takeover_s: float = 10.0,
        # What to start for a file; the socket's descriptor is its last argument
        program: Sequence[str] = PROGRAM,
    ) -> None:
        sources = [
            f
            if isinstance(f, p.ShardOptimizer)
            else p.FunctionSource(f.name, f.source, f.entry, f.digest)
            for f in functions
        ]
        limits: dict[str, Any] = {
            "lives": lives,
            "limit_s": limit_s,
            "takeover_s": takeover_s,
        }
        if isinstance(where, ShardPlace):
            self.process: Client = NetworkPeer(
                p.OpenShard("", sources), where, **limits
            )
        else:
            opening = p.OpenShard(str(where.absolute()), sources)
            self.process = ChildProcess(opening, program=program, **limits)

    def close(self) -> None:
        """End the stream, and a process that was started for it."""
        self.process.close()

    def ask(self, command: p.Command[T]) -> T:
        """Ask the process, in as many frames as it takes; see `Shard.ask`.

        What is asked for or given in several frames is of several moments.
        """
        asked: object = command
        match asked:
            case p.ReadCells(keys):
                return cast("T", self._read(keys, p.ReadCells))
            case p.ReadTagged(known):
                return cast("T", self._read(known, lambda k: _still(known, k)))
            case p.CreateCells(values):
                for part in _batches(values.items()):
                    self.process.ask(p.CreateCells(dict(part)))
                return cast("T", None)
            case p.AcceptCells(cells):
                for some in _batches(cells.items()):
                    self.process.ask(p.AcceptCells(dict(some)))
                return cast("T", None)
            case p.ApplyPush(push):
                # Each key has marks of its own: what a killed process did counts once.
                pushes = [
                    p.Push(push.source, push.sequence, [change for _, change in few])
                    for few in _batches((one.key, one) for one in push.changes)
                ]
                done = [self.process.ask(p.ApplyPush(one)) for one in pushes]
                return cast("T", sum(done))
        return self.process.ask(command)

    def _read(
        self,
        keys: Iterable[str],
        ask: Callable[[list[str]], p.Command[dict[str, V]]],
    ) -> dict[str, V]:
        left, found = list(keys), dict[str, V]()
        while left:
            part = self.process.ask(ask(left))
            if not part or [*part] != left[: len(part)]:
                raise TrustError("STO-T038", "a shard gave other cells than asked for")
            found |= part
            left = left[len(part) :]
        return found


def _still(known: Mapping[str, str], keys: list[str]) -> p.ReadTagged:
    return p.ReadTagged({key: known[key] for key in keys})


def _batches(items: Iterable[tuple[str, V]]) -> Iterator[list[tuple[str, V]]]:
    """Yield keys and what belongs to each in lists that fit a frame."""
    batch: list[tuple[str, V]] = []
    size = 0
    for key, item in items:
        weight = len(key) + len(encode(item))
        if batch and size + weight > p.BATCH_BYTES:
            yield batch
            batch, size = [], 0
        batch.append((key, item))
        size += weight
    if batch:
        yield batch
