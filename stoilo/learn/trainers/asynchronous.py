"""Trainers that wait for nobody: VC-ASGD and Downpour; each answer counts as it comes."""

from __future__ import annotations

import copy
import math
from collections.abc import AsyncIterator, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Literal, Unpack

from stoilo.learn.methods.downpour import Downpour, DownpourSettings
from stoilo.learn.methods.plans import APPLY, LocalWork, Staleness
from stoilo.learn.methods.vcasgd import Alpha, Vcasgd, VcasgdSettings
from stoilo.learn.optimizers import Adagrad, Optimizer
from stoilo.learn.trainers.datasets import read_batches
from stoilo.learn.trainers.epoch import Epoch, TrainingUpdate
from stoilo.learn.trainers.given import Loss
from stoilo.learn.trainers.local import read_optimizer
from stoilo.learn.trainers.places import Place
from stoilo.learn.trainers.trainer import Common, Trainer
from stoilo.learn.work import Snapshot

if TYPE_CHECKING:
    from torch.optim import Optimizer as TorchOptimizerClass

__all__ = ["DownpourTrainer", "VCASGDTrainer"]

_TURNS = 4
"""How often new weights go out in an epoch of VC-ASGD, unless the caller says."""


class VCASGDTrainer(Trainer):
    """Volunteers train their part locally; their weights are mixed into the model's.

    The thesis's later text gives the data epoch by epoch:

        trainer = VCASGDTrainer(conn=conn, model=model, loss_fn=nn.CrossEntropyLoss(),
            optimizer_class=torch.optim.Adam, optimizer_kwargs={"lr": 1e-3})
        async for update in trainer.train_epoch(train_loader):
            print(update.accepted_tasks, update.loss)
        print(trainer.last_epoch_metrics()["avg_loss"])

    Args:
        conn: see `Trainer`; so is `model`.
        data: see `Trainer`; None where `train_epoch` gets loaders.
        alpha: share that the model keeps at each answer, or "e/(e+1)", which grows.
        local_steps: that a volunteer makes in a task; 0 for one pass over its part.
        local: how it makes them: rate, batch (0: its whole part), optimiser.
        epochs: in which each part counts once.
        pull: tasks start from the "latest" model, or from the one at the "epoch"'s start.
            A task's start is fixed when it is ordered: with "latest", a quarter of the
            parts are out at once unless `in_flight` says how many, best about the number
            of volunteers; more would make them wait with old weights.
        mode: "mix" as published, or "delta" without the pull back to a stale start.
        staleness: what older answers are worth.
        loss_fn: other name of `loss`.
        optimizer_class: torch's name for the volunteer's own optimiser, instead of `local`:
            SGD, Adam or AdamW; its state begins anew with each task.
        optimizer_kwargs: its ``lr``, ``momentum`` or ``weight_decay``.
        common: see `Common`.
    """

    def __init__(
        self,
        conn: Place,
        model: object,
        data: object = None,
        *,
        alpha: Alpha = 0.95,
        local_steps: int = 1,
        local: LocalWork | None = None,
        epochs: int = 10,
        pull: Literal["latest", "epoch"] = "latest",
        mode: Literal["mix", "delta"] = "mix",
        staleness: Staleness = APPLY,
        loss_fn: Loss | None = None,
        optimizer_class: type[TorchOptimizerClass] | None = None,
        optimizer_kwargs: Mapping[str, Any] | None = None,
        **common: Unpack[Common],
    ) -> None:
        if optimizer_class is not None:
            local = read_optimizer(optimizer_class, dict(optimizer_kwargs or {}))
        options = common.get("options")
        self._settings = VcasgdSettings(
            epochs,
            replace(local or LocalWork(rate=0.1), steps=local_steps),
            alpha,
            pull,
            mode,
            staleness,
            options.seed if options else 0,
        )
        given: Common = {"loss": common.get("loss") or loss_fn, "options": options}
        super().__init__(conn, model, data, self._mix, name="vcasgd", **given)

    def _most_out(self) -> int:
        if self.options.in_flight or self._settings.pull == "epoch":
            return super()._most_out()
        return math.ceil(len(self.parts) / _TURNS)

    def _mix(self, start: Snapshot, sizes: Sequence[int]) -> Vcasgd:
        return Vcasgd(start, sizes, self._settings)

    def train_epoch(
        self, train_loader: Iterable[tuple[Any, Any]] | None = None
    ) -> Epoch:
        """Train one epoch: await it, or follow its answers.

        Args:
            train_loader: yields (inputs, targets), each batch a task, instead of the
                trainer's own data.
        """
        if train_loader is None:
            return super().train_epoch()
        return Epoch(self._follow(train_loader), lambda: self.epochs[-1])

    async def _follow(
        self, loader: Iterable[tuple[Any, Any]]
    ) -> AsyncIterator[TrainingUpdate]:
        number, settings = self.epoch_number, self._settings
        now = replace(
            settings, alpha=settings.keep(number), seed=settings.seed + number, epochs=1
        )
        await self.change_data(
            read_batches(loader), lambda start, sizes: Vcasgd(start, sizes, now)
        )
        async for update in self._follow_epoch():
            yield update


class DownpourTrainer(Trainer):
    """Each part's gradients are pushed as they come; the optimiser's state stays here.

    A part is a replica: each has one task out, from the weights at its own last push.

    Args:
        conn: see `Trainer`; so are `model` and `data`.
        settings: passes, batch, local steps of a task, staleness, warm start.
        optimizer: at the server, as a copy that is this trainer's alone; Adagrad, which
            asynchrony harms least, when None.
        common: see `Common`.
    """

    def __init__(
        self,
        conn: Place,
        model: object,
        data: object,
        settings: DownpourSettings,
        *,
        optimizer: Optimizer | None = None,
        **common: Unpack[Common],
    ) -> None:
        server = copy.deepcopy(optimizer) or Adagrad(0.05)

        def make(start: Snapshot, sizes: Sequence[int]) -> Downpour:
            return Downpour(start, sizes, server, settings)

        super().__init__(conn, model, data, make, name="downpour", **common)
