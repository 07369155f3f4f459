"""The root's half of a training in regions: a place where a step is one version and one sum.

    regions = Regions(traffic, {"turin": range(4), "porto": range(4, 8)})
    trained = await learn.fit("dpbgd", model, parts, regions, block=64)
    await regions.end()

To a trainer it is a backend. Its method orders a step as one piece of work (`Gathered`); what
comes back is the sum of all regions that were there in time, with their samples counted. The
other half is `stoilo.learn.trainers.region`.
"""

from __future__ import annotations

import asyncio
import logging
import math
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from stoilo.core.errors import TrustError, UnreachableError, UsageError
from stoilo.learn.backends import Job, JobEnd, OwnBackend
from stoilo.learn.core.orders import PARTLY, Method, Order, Snapshot
from stoilo.learn.core.tensors import Form
from stoilo.learn.methods.base import Piece
from stoilo.learn.methods.optimizers import Optimizer
from stoilo.learn.methods.synchronous import (
    LargeMinibatch,
    Schedule,
    Synchronous,
    SynchronousSettings,
    sum_gradients,
)
from stoilo.learn.traffic.rounds import Round, Traffic, read_sum

LOGGER = logging.getLogger(__name__)
_ASK_S = 2.0  # that one question to the node takes at most
_PAUSE_S = 0.2  # before a node that is not there is asked again


class Gathered(Synchronous):
    """Rounds of gradients of which each is one piece of work: regions share it out.

    Attributes:
        first: number of the training's first version at nodes, the same after a restart.
    """

    kept = Synchronous.kept | {"first": int}

    def __init__(
        self,
        first: int,
        start: Snapshot,
        sizes: Sequence[int],
        optimizer: Optimizer,
        settings: SynchronousSettings,
        schedule: Schedule | None,
    ) -> None:
        self.first = first
        super().__init__(start, sizes, optimizer, settings, schedule=schedule)

    def _plan(self, epoch: int, step: int) -> dict[str, Piece]:
        samples = sum(one.samples for one in super()._plan(epoch, step).values())
        return {f"e{epoch}/s{step}": Piece(0, samples)} if samples else {}

    def _order(self, key: str) -> Order:
        order = super()._order(key)
        told = {"epoch": self._epoch, "step": self._step, PARTLY: True}
        like = order.snapshot.parameters.items()
        forms = {name: Form("float64", array.shape) for name, array in like}
        return replace(order, settings={**order.settings, **told}, forms=forms)


class Regions(OwnBackend):
    """The regions of a training, at the root's node; a trainer's place.

    Args:
        traffic: the root's own node.
        shares: region, by its node's name → numbers of the data parts that it has.
        bound: longest mean gradient with which an answer counts; longer ones are shortened.
            Sums are whole numbers of a step that follows from it.
        wait_s: after so long, s, a step is made of the regions that are there; one at least.

    Attributes:
        missed: region → in how many steps it was not.
    """

    def __init__(
        self,
        traffic: Traffic,
        shares: Mapping[str, Sequence[int]],
        *,
        bound: float = 1000.0,
        wait_s: float = 600.0,
    ) -> None:
        if not (0.0 < bound < math.inf and wait_s > 0.0 and shares):
            raise UsageError(
                "STO-T040", "regions need names, a bound and a time to wait"
            )
        self._traffic, self._bound, self._wait_s = traffic, bound, wait_s
        self._shares = {name: tuple(share) for name, share in shares.items()}
        self.missed: Counter[str] = Counter()
        self._sizes: tuple[int, ...] = ()
        self._method: Gathered | None = None
        self._out: dict[str, asyncio.Task[JobEnd]] = {}

    def lead(self, method: Method, sizes: Sequence[int]) -> Gathered:
        """Return a method made anew as one whose steps are shared out.

        Raises:
            UsageError: ``STO-T040`` for one that needs more than a sum of each step.
        """
        if sorted(p for s in self._shares.values() for p in s) != [*range(len(sizes))]:
            raise _refuse("each data part is in one region's share")
        if type(method) not in (Synchronous, LargeMinibatch):
            raise _refuse(f"{type(method).__name__} does not add up plain rounds")
        assert isinstance(method, Synchronous)  # noqa: S101 - for the type checker
        of = method.settings
        if method.combine is not sum_gradients:
            rule = type(getattr(method.combine, "rule", None)).__name__
            raise _refuse(f"{rule} compares single answers, and only sums come here")
        if of.fraction < 1.0 or of.backups or of.late == "queue" or of.local:
            raise _refuse(
                "late answers, backups and local steps are a region's to have"
            )
        if method.snapshot.buffers:
            raise _refuse("statistics of BatchNorm have no bound: use GroupNorm")
        # Nanoseconds: a later training's numbers are greater, and the files' of a project's
        # server, counted in microseconds, are never among them.
        about = (method.snapshot, sizes, method.optimizer, of, method.rates)
        self._method = Gathered(time.time_ns(), *about)
        self._sizes = tuple(sizes)
        return self._method

    async def submit(self, job: Job) -> str:
        """Give a version to the own node, once, and wait for its sum from now on."""
        if job.key not in self._out:
            there = self._compose(job)
            await asyncio.to_thread(self._traffic.give, there.number, there.render())
            self._out[job.key] = asyncio.create_task(self._gather(job, there))
        return job.key

    def _compose(self, job: Job) -> Round:
        given: Mapping[str, Any] = job.arguments  # as `Jobs` makes them
        told, sizes = given["settings"], self._sizes
        assert self._method is not None  # noqa: S101 - its order it is
        of = self._method.settings
        blocks = (of.block,) * len(sizes) if isinstance(of.block, int) else of.block
        return Round(
            number=self._method.first + given["version"],
            epoch=told["epoch"],
            step=told["step"],
            parameters=given["parameters"].stored,
            sizes=sizes,
            blocks=blocks,
            seed=of.seed,
            in_order=of.in_order,
            shares=self._shares,
            bound=self._bound,
        )

    async def _gather(self, job: Job, there: Round) -> JobEnd:
        """Return a step's sum, of all that have a share in it or, late, of who is there."""
        wanted = sorted(name for name in self._shares if there.count_of(name))
        given: Mapping[str, Any] = job.arguments
        end, found = self.now() + self._wait_s, None
        while found is None or (len(found[0]) < len(wanted) and self.now() < end):
            left = max(0.0, min(_ASK_S, end - self.now()))
            found = await self._collect(there.number, wanted, left)
        ids, data = found
        if len(ids) < len(wanted):
            # Asked for what is there, the node ends the round: later ones are nobody's.
            ids, data = await self._collect(there.number, ids, _ASK_S) or found
            self._note(wanted, ids)
        try:
            most, version = sum(map(there.count_of, ids)), given["version"]
            value = read_sum(data, there.parameters, there.terms, version, most)
        except TrustError as error:
            return JobEnd(job.key, None, error, self.now())
        return JobEnd(job.key, value, None, self.now())

    async def _collect(
        self, number: int, ids: Sequence[str], wait_s: float
    ) -> tuple[tuple[str, ...], bytes] | None:
        try:
            return await asyncio.to_thread(self._traffic.collect, number, ids, wait_s)
        except UnreachableError:
            await asyncio.sleep(_PAUSE_S)
            return None

    def _note(self, wanted: Sequence[str], ids: Sequence[str]) -> None:
        late = {*wanted}.difference(ids)
        if new := sorted(late.difference(self.missed)):
            LOGGER.warning("a step was made without %s", ", ".join(new))
        self.missed.update(late)

    async def next(self, wait_s: float | None = None) -> JobEnd | None:
        """Return the next step's sum."""
        if not self._out:
            return None
        done, _ = await asyncio.wait(
            self._out.values(),
            timeout=wait_s,
            return_when=asyncio.FIRST_COMPLETED,
        )
        key = next((key for key, task in self._out.items() if task in done), None)
        return None if key is None else self._out.pop(key).result()

    async def cancel(self, job_id: str) -> None:
        """Wait for a step's sum no more."""
        if (task := self._out.pop(job_id, None)) is not None:
            task.cancel()

    async def end(self) -> None:
        """Tell the regions that the training is over: they end.

        Raises:
            UnreachableError: ``STO-T037``, the own node is not there.
        """
        if self._method is not None:
            method = self._method
            last = Round.end(method.first + method.snapshot.version)
            await asyncio.to_thread(self._traffic.give, last.number, last.render())

    async def close(self) -> None:
        """Wait for nothing any more; regions go on at what they have."""
        for key in [*self._out]:
            await self.cancel(key)


def as_gathered(method: Method, place: object, sizes: Sequence[int]) -> Method:
    """Return the method, as one of regions where these are its place.

    Raises:
        UsageError: ``STO-T040``, see `Regions.lead`.
    """
    return place.lead(method, sizes) if isinstance(place, Regions) else method


def _refuse(why: str) -> UsageError:
    return UsageError(
        "STO-T040",
        f"this training cannot be shared out to regions: {why}",
        hint="SynchronousTrainer, LargeMinibatchTrainer or DPBGDTrainer with rule=None;"
        " the bound on each answer (clip=), fraction=, backups= and a robust rule= within"
        " a region are arguments of each Region",
    )
