"""Regions in one process: a fake of the nodes between them, and a training on both halves."""

from __future__ import annotations

import asyncio
import threading
import time
from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import Any

import numpy as np

from stoilo.core.errors import UnreachableError
from stoilo.learn import Part, Region, Regions, TrainerOptions, fit, split
from stoilo.learn.traffic.holdings import KEPT_VERSIONS
from stoilo.learn.traffic.rounds import Traffic
from tests.support.points import make_model, make_samples

__all__ = [
    "PARTS",
    "WISHES",
    "FakeNode",
    "Net",
    "deal",
    "make_region",
    "run_regions",
    "train",
]

WISHES = {"epochs": 4, "block": 7, "rate": 0.3}
PARTS = split(*make_samples(), 6, seed=0)


class Net:
    """What all nodes hold together, at once: versions of all, parts of each round's sum."""

    def __init__(self) -> None:
        self.changed = threading.Condition()
        self.versions: dict[int, bytes] = {}
        self.parts: dict[int, dict[str, bytes]] = defaultdict(dict)
        self.given: Counter[tuple[int, str]] = Counter()
        self.forgotten: list[int] = []  # rounds, as they were collected

    def node(self, name: str) -> FakeNode:
        """Return a node of it."""
        return FakeNode(self, name)


class FakeNode:
    """A node in memory, to be cut off with `is_down`."""

    def __init__(self, net: Net, name: str) -> None:
        self.net, self.name, self.is_down = net, name, False

    def give(self, number: int, data: bytes, ids: Sequence[str] = ()) -> None:
        self._check()
        with self.net.changed:
            for one in ids:
                self.net.parts[number][one] = data
                self.net.given[number, one] += 1
            if not ids:
                self.net.versions[number] = data
                for old in sorted(self.net.versions)[:-KEPT_VERSIONS]:
                    del self.net.versions[old]
            self.net.changed.notify_all()

    def collect(
        self, number: int, ids: Sequence[str], wait_s: float
    ) -> tuple[tuple[str, ...], bytes]:
        end, net = time.monotonic() + wait_s, self.net
        with net.changed:
            while self._check() or not self._is_whole(number, ids):
                if (left := end - time.monotonic()) <= 0:
                    break
                net.changed.wait(min(left, 0.02))
            return self._open(number, ids)

    def _check(self) -> bool:
        if self.is_down:
            raise UnreachableError("STO-T037", f"{self.name} is cut off")
        return False

    def _is_whole(self, number: int, ids: Sequence[str]) -> bool:
        if not ids:
            return max(self.net.versions, default=-1) >= number
        return {*ids} <= self.net.parts.get(number, {}).keys()

    def _open(self, number: int, ids: Sequence[str]) -> tuple[tuple[str, ...], bytes]:
        here = self.net.parts.get(number, {})
        found = sorted(here.keys() & {*ids})
        if not (found if ids else self._is_whole(number, ids)):
            raise UnreachableError("STO-T037", f"nothing of {number}")
        if not ids:
            return (), self.net.versions[max(self.net.versions)]
        total = np.sum([np.frombuffer(here[one], "<i8") for one in found], axis=0)
        if len(found) == len(ids):
            here.clear()  # acknowledged: all forget the round
            self.net.forgotten.append(number)
        return tuple(found), total.tobytes()


def deal(count: int, parts: int = len(PARTS)) -> dict[str, tuple[int, ...]]:
    """Return so many regions' shares, runs of nearly equal length."""
    cuts = np.array_split(np.arange(parts), count)
    return {f"r{i}": tuple(cut.tolist()) for i, cut in enumerate(cuts)}


def make_region(
    name: str,
    traffic: Traffic,
    share: Sequence[int],
    place: Any = None,
    parts: Sequence[Part] = PARTS,
    **more: Any,
) -> Region:
    """Return a region of the points' model with its own parts."""
    own = [parts[part] for part in share]
    # What is usual differs by region; what is looked at again is drawn
    usual = TrainerOptions(clip=None, home_checks=0.0)
    options = {"again_s": 0.05, "options": usual, **more}
    model = options.pop("model", None) or make_model()
    return Region(name, traffic, place, model, own, **options)


class run_regions:  # noqa: N801 - it is called like a function
    """Regions that serve while a block runs; ended with it."""

    def __init__(self, *regions: Region) -> None:
        self._regions = regions

    async def __aenter__(self) -> list[asyncio.Task[None]]:
        self.tasks = [asyncio.create_task(one.serve()) for one in self._regions]
        return self.tasks

    async def __aexit__(self, *_: object) -> None:
        for task in self.tasks:
            task.cancel()
            with suppress(asyncio.CancelledError):
                await task


async def train(
    net: Net, shares: Mapping[str, Sequence[int]], *regions: Region, **wishes: Any
) -> Any:
    """Train with these regions and tell them the end; return what came of it."""
    wait_s = wishes.pop("wait_s", 60.0)
    root = Regions(net.node("root"), shares, wait_s=wait_s)
    given = {**({} if "method" in wishes else WISHES), **wishes}
    async with run_regions(*regions) as serving:
        method = given.pop("method", "dpbgd")
        trained = await beside(serving, fit(method, make_model(), PARTS, root, **given))
        await root.end()
        await asyncio.wait_for(asyncio.gather(*serving), 60.0)
    return trained


async def beside(serving: Sequence[asyncio.Task[None]], work: Any) -> Any:
    """Await work of the root's; what ends a region ends it, too."""
    task = asyncio.ensure_future(work)
    await asyncio.wait({task, *serving}, return_when=asyncio.FIRST_COMPLETED)
    for one in serving:
        if one.done() and not task.done():
            task.cancel()
            one.result()
    return await task
