"""A region's half of a training: its aggregator, beside the region's own server and node.

    region = Region("turin", traffic, conn, model, parts, loss=loss)
    await region.serve()

For each version that its node has, it orders the tasks of its own data parts at its own
server, checks and bounds the answers as any trainer does, adds them up in whole numbers and
gives the sum to its node, under its name. The version that follows says that the sum is there,
or that the root went on without it; until then it gives it again, so whoever is killed between
two of these steps loses nothing, and the round's number says that nothing counts twice.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial

from stoilo.core.errors import UnreachableError, UsageError
from stoilo.learn.core.orders import Reply, Snapshot
from stoilo.learn.core.states import unfit
from stoilo.learn.core.tensors import Array, forms_of
from stoilo.learn.driver.run import Run
from stoilo.learn.methods.base import Piece
from stoilo.learn.methods.optimizers import Sgd
from stoilo.learn.methods.rules import Rule
from stoilo.learn.methods.synchronous import (
    Combine,
    Synchronous,
    SynchronousSettings,
    sum_gradients,
)
from stoilo.learn.traffic.rounds import (
    Bounded,
    Round,
    Terms,
    Traffic,
    add_up,
    read_round,
)
from stoilo.learn.trainers.named import combine_by
from stoilo.learn.trainers.options import Loss, Place, TrainerOptions
from stoilo.learn.trainers.trainer import Trainer

_ENDLESS = 1 << 30  # epochs: the root counts them
_LOOK_S = 1.0  # how often a region at work looks whether the root went on without it


@dataclass(frozen=True, slots=True)
class Made:
    """What a region brings to a round: part of its checkpoint, so it is the same again."""

    values: Array  # see `stoilo.learn.traffic.rounds`


class RegionSums(Synchronous):
    """The sums of a region's answers to one version after the other; no step is made here.

    Keys, rows and seeds are those that one trainer of all parts would have.

    Attributes:
        number: of the version that it is at, as nodes call it; -1 before the first.
        made: the sum of that round, once it is complete.
    """

    kept = Synchronous.kept | {
        "settings": SynchronousSettings,
        "number": int,
        "made": Made | None,
        "_parts": tuple[int, ...],
        "_share": tuple[int, ...],
        "_terms": Terms,
    }

    def __init__(
        self,
        start: Snapshot,
        own: Sequence[int],
        settings: SynchronousSettings,
        combine: Combine,
    ) -> None:
        self.number, self._terms = -1, Terms()
        self.made: Made | None = None
        self._share: tuple[int, ...] = ()  # of its parts, their numbers among all
        self._own, self._is_left, self._now_s = tuple(own), False, 0.0
        super().__init__(start, own, Sgd(1.0), settings, combine=combine)

    def begin(self, there: Round, share: Sequence[int]) -> None:
        """Go on to a version, whatever was under way.

        Raises:
            UsageError: ``STO-T012`` when it is of another model or of other data parts.
        """
        self._check(there, share)
        self.number, self.made, self._is_left = there.number, None, False
        self._parts, self._share, self._terms = there.sizes, tuple(share), there.terms
        self.settings = replace(
            self.settings,
            seed=there.seed,
            in_order=there.in_order,
            block=there.blocks,
        )
        self._snapshot = Snapshot(there.number, there.parameters)
        self._epoch, self._step = there.epoch, there.step
        self._late, self._replies = set(), {}
        self._begin()

    def _check(self, there: Round, share: Sequence[int]) -> None:
        if forms_of(there.parameters) != forms_of(self._snapshot.parameters):
            raise unfit("the version's parameters have other names, types or shapes")
        if tuple(there.sizes[part] for part in share) != self._own:
            raise unfit("the root has a region's data parts with other sizes")

    def leave(self) -> None:
        """End this round as it is: the root has gone on without it."""
        self._is_left = True

    @property
    def finished(self) -> bool:
        """Whether nothing is to be ordered until the next version."""
        return self.made is not None or self._is_left or not self._pieces

    def note_time(self, now_s: float) -> None:
        """Note the time; see `Method.note_time`."""
        self._now_s = now_s

    def next_alarm(self) -> float | None:
        """Return when to look whether the round was left."""
        return self._now_s + _LOOK_S

    def _cut(self, part: int, epoch: int, step: int) -> Piece | None:
        if part not in self._share:
            return None
        piece, here = super()._cut(part, epoch, step), self._share.index(part)
        return None if piece is None else replace(piece, part=here)

    def _advance(self) -> bool:
        super()._advance()
        return False  # epochs are the root's

    def _follow(self, epoch: int, step: int) -> tuple[int, int]:
        return epoch, step  # the next version says what comes

    def _apply(self) -> None:
        replies = [self._replies[key] for key in sorted(self._replies)]
        if self.combine is not sum_gradients:  # a rule sees them all, and gives one
            samples = sum(reply.samples for reply in replies)
            loss = sum(reply.loss_sum for reply in replies)
            whole = self.combine(replies)
            replies = [Reply(self._snapshot.version, samples, loss, whole)]
        like, terms = self._snapshot.parameters, self._terms
        self.made = Made(add_up(Bounded.of(one, like, terms) for one in replies))
        self._replies = {}


class Region:
    """A region's aggregator.

    Args:
        name: of its node.
        traffic: its node.
        conn: its own server, or another place: see `Trainer`.
        model: as the root has it.
        data: its own data parts, in the order in which the root numbers them.
        loss: of a torch module.
        rule: how its answers are added up, beyond the bound on each: a robust one holds
            while fewer than it stands are wrong *here*; what others have does not help.
            Sums then depend on how parts are divided into regions.
        fraction: share of its answers that makes a round's sum, rounded up.
        backups: see `SynchronousSettings`.
        options: bound on each answer, copies, checks, folder: as for any trainer.
        again_s: after so long without a newer version, s, its sum is given again.
    """

    def __init__(
        self,
        name: str,
        traffic: Traffic,
        conn: Place,
        model: object,
        data: object,
        *,
        loss: Loss | None = None,
        rule: Rule | None = None,
        fraction: float = 1.0,
        backups: float = 0.0,
        options: TrainerOptions | None = None,
        again_s: float = 5.0,
    ) -> None:
        settings = SynchronousSettings(_ENDLESS, fraction=fraction, backups=backups)
        make = partial(RegionSums, settings=settings, combine=combine_by(rule))
        self._trainer = Trainer(
            conn, model, data, make, loss=loss, options=options, name=f"region {name}"
        )
        if self._trainer.snapshot.buffers:
            raise UsageError(
                "STO-T040", "statistics of BatchNorm are not added up: use GroupNorm"
            )
        self.name, self._traffic, self._again_s = name, traffic, again_s
        self._seen = -1  # number of the newest version that was looked at
        self._due: Made | None = None  # what is given again

    @property
    def run(self) -> Run:
        """What drives it: its tally says how many answers were refused."""
        return self._trainer.run

    @property
    def method(self) -> RegionSums:
        """Where it is."""
        method = self.run.method
        assert isinstance(method, RegionSums)  # noqa: S101 - it was made so
        return method

    async def serve(self) -> None:
        """Add up until the root says that the training is over.

        Raises:
            UsageError: ``STO-T012``, root and region have not the same model and parts;
                ``STO-T060``, too few answers for the rule.
            UserError: the researcher's own code failed too often on volunteers.
        """
        async with self._trainer:
            while await self._go_on():
                pass

    async def _go_on(self) -> bool:
        """Make a round's sum and wait for the next version; return whether there is one."""
        newer = asyncio.create_task(self._find_newer())
        try:
            with contextlib.suppress(StopAsyncIteration):
                while not self.method.finished:
                    await self.run.step()
            self._due = self.method.made  # it is saved by now
            await self._give()
            there = await newer
        finally:
            newer.cancel()
        self._due = None
        await self.run.end()
        if there.sizes:
            self.method.begin(there, there.shares.get(self.name, ()))
        return bool(there.sizes)

    async def _give(self) -> None:
        if self._due is not None:
            number, data = self.method.number, self._due.values.tobytes()
            give = partial(self._traffic.give, number, data, (self.name,))
            with contextlib.suppress(UnreachableError):  # it is given again
                await asyncio.to_thread(give)

    async def _find_newer(self) -> Round:
        """Return a newer version, once there is one; what is under way is left then."""
        while (found := await asyncio.to_thread(self._look)) is None:
            await self._give()
        self.method.leave()
        return found

    def _look(self) -> Round | None:
        """Wait for a newer version a while; the end of an earlier training is none."""
        after = max(self._seen, self.method.number)
        try:
            data = self._traffic.collect(after + 1, (), self._again_s)[1]
        except UnreachableError:
            return None
        found = read_round(data)
        self._seen = found.number
        is_early = self.method.number < 0 and not found.sizes
        return None if is_early else found
