"""`DPBGDTrainer`: synchronous data-parallel training, as the thesis prints it.

    trainer = await stoilo.ml.DPBGDTrainer(conn, model, loss_func,
        optimizer_class, optimizer_kwargs, dataset)
    model, avg_loss = await trainer.train_epoch()

Two things differ from the trainer of 2025, both because it was wrong there: gradients are
weighted by samples (a last batch that is smaller counts less), and BatchNorm's statistics
come back with them. An epoch is one optimiser step unless `steps_per_epoch` says more.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Literal

from stoilo.core.errors import UsageError
from stoilo.learn.core.data import read_batches
from stoilo.learn.core.models import TorchModel
from stoilo.learn.core.orders import Snapshot
from stoilo.learn.methods.buffers import find_momentum
from stoilo.learn.methods.optimizers import TorchOptimizer
from stoilo.learn.methods.rules import Rule
from stoilo.learn.methods.synchronous import Synchronous, SynchronousSettings
from stoilo.learn.trainers.named import combine_by
from stoilo.learn.trainers.options import Loss, Place, TrainerOptions, as_parts
from stoilo.learn.trainers.trainer import Trainer

if TYPE_CHECKING:
    from torch import nn
    from torch.optim import Optimizer

    from stoilo.core.types import Redundancy


_ENDLESS = 1 << 30


@dataclass(frozen=True, slots=True)
class DPBGDOptions(TrainerOptions):
    """What the published trainers did not let one choose; the others' options as well.

    Attributes:
        steps_per_epoch: optimiser steps in an epoch, each over its share of every batch.
        fraction: share of a step's answers that end it; what comes later is dropped.
        backups: once so small a share of a step is unanswered, what is out goes out again
            to hosts that have nothing else to do; 0: never.
        reduction: whether the loss is a mean over samples or their sum; what the loss
            itself says (torch's classes do), else the mean, when None.
        rule: how a step's answers are added up; the exact weighted sum when None, as one
            machine would; `Near` where hosts may push together.
    """

    steps_per_epoch: int = 1
    fraction: float = 1.0
    backups: float = 0.0
    reduction: Literal["mean", "sum"] | None = None
    rule: Rule | None = None


class DPBGDTrainer(Trainer):
    """Trains a torch model with one gradient task a mini-batch.

    There are as many epochs as one trains: `finished` speaks of the stop rule alone.

    Args:
        conn: a connection, a backend of `stoilo.learn.backends`, or None for threads here.
        model: of a torch class or the researcher's own; its weights are kept up to date.
        loss_func: ``(output, target) -> scalar``.
        optimizer_class: a torch optimiser's class.
        optimizer_kwargs: its keyword arguments.
        dataset: pairs of sample and target (a torch dataset), or a pair of arrays, for
            `train_epoch`; a text is taken as `flavor`, where the trainer of 2025 had it.
        redundancy_options: copies and quorum of a task; one copy when missing, where the
            thesis (§9.2) had two: see `TrainerOptions.redundancy`.
        flavor: dependency set; the smallest that holds the imports when missing.
        loss_fn: other name of `loss_func`.
        options: further choices.
    """

    options: DPBGDOptions

    def __init__(
        self,
        conn: Place,
        model: nn.Module,
        loss_func: Loss | None = None,
        optimizer_class: type[Optimizer] | None = None,
        optimizer_kwargs: Mapping[str, Any] | None = None,
        dataset: object = None,
        redundancy_options: Redundancy | None = None,
        *,
        flavor: str | None = None,
        loss_fn: Loss | None = None,
        options: DPBGDOptions | None = None,
    ) -> None:
        loss = loss_func or loss_fn
        if loss is None or optimizer_class is None:
            raise UsageError(
                "STO-T040",
                "the trainer needs a loss function and an optimiser's class",
                hint="DPBGDTrainer(conn, model, loss_func, optimizer_class, {...}, dataset)",
            )
        if isinstance(dataset, str):
            dataset, flavor = None, dataset
        given = options or DPBGDOptions()
        self._module = model
        form = TorchModel(model, loss, given.reduction)
        self._reduction: Literal["mean", "sum"] = (
            "sum" if form.reduction == "sum" else "mean"
        )
        self._optimizer = TorchOptimizer(
            optimizer_class, dict(optimizer_kwargs or {}), form.first().parameters
        )
        # What the published interface names beside the options comes first.
        chosen = replace(
            given,
            redundancy=redundancy_options or given.redundancy,
            flavor=flavor or given.flavor,
        )
        self._own = None if dataset is None else as_parts(dataset, chosen)
        self._is_elsewhere = False
        self._works: tuple[str, ...] = ()
        super().__init__(
            conn,
            form,
            self._own,
            self._make_endless,
            options=chosen,
            name="dpbgd",
            kept=self._optimizer,
        )

    def _make_endless(self, start: Snapshot, sizes: Sequence[int]) -> Synchronous:
        steps = self.options.steps_per_epoch
        block = math.ceil(max(sizes) / steps) if steps > 1 else 0
        return self._make_method(start, sizes, block, _ENDLESS)

    def _make_step(self, start: Snapshot, sizes: Sequence[int]) -> Synchronous:
        return self._make_method(start, sizes, 0, 1)

    def _make_method(
        self, start: Snapshot, sizes: Sequence[int], block: int, epochs: int
    ) -> Synchronous:
        settings = SynchronousSettings(
            epochs=epochs,
            block=block,
            fraction=self.options.fraction,
            backups=self.options.backups,
            reduction=self._reduction,
            seed=self.options.seed + start.version,
            bn_momentum=find_momentum(self._module, self.parts[0]),
        )
        combine = combine_by(self.options.rule)
        return Synchronous(start, sizes, self._optimizer, settings, combine=combine)

    @property
    def finished(self) -> bool:
        """Whether the stop rule is reached."""
        return self.stopped

    async def train_epoch(self) -> tuple[nn.Module, float]:  # type: ignore[override]  # the thesis prints a pair
        """Train one epoch on the dataset; return the model and the mean loss.

        With a folder, a killed trainer goes on in the epoch in which it was: train while
        `epoch_number` is below what you want.

        Raises:
            UsageError: ``STO-T004`` without a dataset, ``STO-T081`` after the stop rule.
            UserError: the researcher's own code failed too often on volunteers.
        """
        if self._is_elsewhere and self._own is not None:
            await self.change_data(self._own)
        self._is_elsewhere = False
        return await self._finish_epoch()

    async def _finish_epoch(self) -> tuple[nn.Module, float]:
        metrics = await super().train_epoch()
        return self.model, metrics.average_loss

    async def epoch(
        self, data_loader: Iterable[tuple[Any, Any]]
    ) -> tuple[nn.Module, float]:
        """Make one optimiser step over all batches of a loader (interface of 2025).

        Each batch, (inputs, targets), is one task.
        """
        works = await self.epoch_create_work(data_loader)
        return await self.epoch_aggregate_results(works)

    async def epoch_create_work(
        self, data_loader: Iterable[tuple[Any, Any]]
    ) -> tuple[str, ...]:
        """Order the gradients of a loader's batches; return the tasks' ids without waiting.

        With a folder and no dataset, the model and the optimiser are saved after each
        step: a killed trainer goes on with the step in which it was, from its beginning.

        Raises:
            UsageError: ``STO-T081`` with a folder and a dataset.
        """
        await self.change_data(read_batches(data_loader), self._make_step)
        self._is_elsewhere = True
        self._works = await self.order()
        return self._works

    async def epoch_aggregate_results(
        self, works: Sequence[str]
    ) -> tuple[nn.Module, float]:
        """Wait for those gradients, make the step, return the model and the mean loss.

        Raises:
            UsageError: ``STO-T081`` when `works` are not what `epoch_create_work` returned.
            UserError: the researcher's own code failed too often on volunteers.
        """
        if not works or tuple(works) != self._works:
            raise UsageError(
                "STO-T081",
                "these tasks are not those of the present step",
                hint="epoch_aggregate_results(await epoch_create_work(data_loader))",
            )
        self._works = ()
        return await self._finish_epoch()
