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
from collections.abc import Callable, Generator, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, Self

import numpy as np

from stoilo.core.errors import UsageError
from stoilo.learn.data import Part, split
from stoilo.learn.history import History
from stoilo.learn.methods.synchronous import Synchronous, SynchronousSettings
from stoilo.learn.models import TorchModel, find_momentum
from stoilo.learn.robust import Memory
from stoilo.learn.run import Run, RunSettings
from stoilo.learn.torch_optimizer import TorchOptimizer
from stoilo.learn.trainers.datasets import read_arrays
from stoilo.learn.trainers.places import Place, open_backend
from stoilo.learn.transport import Transport, TransportName, as_transport
from stoilo.learn.work import Snapshot, Update

if TYPE_CHECKING:
    from torch import nn
    from torch.optim import Optimizer

    from stoilo.core.types import Redundancy

__all__ = ["DPBGDOptions", "DPBGDTrainer"]

_ENDLESS = 1 << 30


@dataclass(frozen=True, slots=True)
class DPBGDOptions:
    """What the published trainers did not let one choose.

    Attributes:
        tasks: into how many mini-batches the dataset is split.
        steps_per_epoch: optimiser steps in an epoch, each over its share of every batch.
        fraction: share of a step's answers that end it; what comes later is dropped.
        in_flight: tasks out at most; all of a step's when 0.
        reduction: whether the loss is a mean over samples or their sum; what the loss
            itself says (torch's classes do), else the mean, when None.
        seed: of splitting and shuffling.
        folder: of checkpoint and history; None keeps nothing.
        transport: how gradients travel: "raw", "compressed", "ternary", or a codec.
    """

    tasks: int = 8
    steps_per_epoch: int = 1
    fraction: float = 1.0
    in_flight: int = 0
    reduction: Literal["mean", "sum"] | None = None
    seed: int = 0
    folder: Path | None = None
    transport: Transport | TransportName = "raw"


class DPBGDTrainer:
    """Trains a torch model with one gradient task a mini-batch.

    Args:
        conn: a connection, a backend of `stoilo.learn.backends`, or None for threads here.
        model: of a torch class or the researcher's own; its weights are kept up to date.
        loss_func: ``(output, target) -> scalar``.
        optimizer_class: a torch optimiser's class.
        optimizer_kwargs: its keyword arguments.
        dataset: pairs of sample and target (a torch dataset), or a pair of arrays, for
            `train_epoch`; a text is taken as `flavor`, where the trainer of 2025 had it.
        redundancy_options: copies and quorum of a task; one copy when missing.
        flavor: dependency set; the smallest that holds the imports when missing.
        loss_fn: other name of `loss_func`.
        options: further choices.
    """

    def __init__(
        self,
        conn: Place,
        model: nn.Module,
        loss_func: Callable[[Any, Any], Any] | None = None,
        optimizer_class: type[Optimizer] | None = None,
        optimizer_kwargs: Mapping[str, Any] | None = None,
        dataset: object = None,
        redundancy_options: Redundancy | None = None,
        *,
        flavor: str | None = None,
        loss_fn: Callable[[Any, Any], Any] | None = None,
        options: DPBGDOptions | None = None,
    ) -> None:
        loss = loss_func or loss_fn
        if loss is None or optimizer_class is None:
            raise UsageError(
                "STO-T005",
                "the trainer needs a loss function and an optimiser's class",
                hint="DPBGDTrainer(conn, model, loss_func, optimizer_class, {...}, dataset)",
            )
        if isinstance(dataset, str):
            dataset, flavor = None, dataset
        self.options = options or DPBGDOptions()
        self.history: list[History] = []
        said = str(self.options.reduction or getattr(loss, "reduction", "mean"))
        said = "mean" if said == "batchmean" else said
        self._reduction: Literal["mean", "sum"] = "sum" if said == "sum" else "mean"
        self._torch = TorchModel(model, loss, said)
        self._backend = open_backend(conn, redundancy_options, flavor)
        self._snapshot = self._torch.first()
        self._optimizer = TorchOptimizer(
            optimizer_class, dict(optimizer_kwargs or {}), self._snapshot.parameters
        )
        self._dataset = dataset
        self._run: Run | None = None
        self._memory: Memory | None = None

    def __await__(self) -> Generator[Any, None, Self]:
        """Return the trainer: the thesis awaits its constructor."""
        yield from ()
        return self

    @property
    def model(self) -> nn.Module:
        """The researcher's model with the newest weights and buffers."""
        return self._torch.load_into(self._snapshot)

    async def train_epoch(self) -> tuple[nn.Module, float]:
        """Train one epoch on the dataset; return the model and the mean loss.

        With a folder, a killed trainer goes on in the epoch in which it was.

        Raises:
            UsageError: ``STO-T006`` without a dataset.
            UserError: the researcher's own code failed too often on volunteers.
        """
        run = await self._begin()
        losses: list[Update] = []
        update = await run.step()
        losses.append(update)
        while not update.epoch_ended:
            update = await run.step()
            losses.append(update)
        self._snapshot = run.method.snapshot
        return self.model, _mean_loss(losses)

    async def _begin(self) -> Run:
        if self._run is None:
            parts = self._split()
            block = max(map(len, parts)) / self.options.steps_per_epoch
            steps = self.options.steps_per_epoch
            settings = self._settings(block=math.ceil(block) if steps > 1 else 0)
            self._run = self._make_run(parts, replace(settings, epochs=_ENDLESS))
            await self._run.start()
        return self._run

    def _split(self) -> list[Part]:
        if self._dataset is None:
            raise UsageError(
                "STO-T006",
                "train_epoch needs a dataset",
                hint="give one to the trainer, or call epoch(data_loader)",
            )
        x, y = read_arrays(self._dataset)
        return split(x, y, min(self.options.tasks, len(x)), seed=self.options.seed)

    async def epoch(
        self, data_loader: Iterable[tuple[Any, Any]]
    ) -> tuple[nn.Module, float]:
        """Make one optimiser step over all batches of a loader (interface of 2025).

        Args:
            data_loader: yields (inputs, targets); each batch is one task.
        """
        parts = [Part(np.asarray(x), np.asarray(y)) for x, y in data_loader]
        run = self._make_run(parts, self._settings(block=0), keep=False)
        self._snapshot = await run.finish()
        self._memory = run.memory
        return self.model, _mean_loss(run.history.updates)

    def _settings(self, block: int) -> SynchronousSettings:
        return SynchronousSettings(
            epochs=1,
            block=block,
            fraction=self.options.fraction,
            reduction=self._reduction,
            seed=self.options.seed,
            bn_momentum=find_momentum(self._torch.module),
        )

    def _make_run(
        self, parts: Sequence[Part], settings: SynchronousSettings, *, keep: bool = True
    ) -> Run:
        sizes = [len(part) for part in parts]
        method = Synchronous(self._snapshot, sizes, self._optimizer, settings)
        run = Run(
            method,
            self._torch,
            parts,
            self._backend,
            RunSettings(
                name="dpbgd",
                in_flight=self.options.in_flight or len(parts),
                folder=self.options.folder if keep else None,
                transport=as_transport(self.options.transport),
            ),
            memory=self._memory,
        )
        self.history.append(run.history)
        return run

    def get_model(self) -> nn.Module:
        """Return the model with the newest weights (name of the later interface)."""
        return self.model

    @property
    def snapshot(self) -> Snapshot:
        """The newest version."""
        return self._snapshot

    async def close(self) -> None:
        """Stop waiting; with a folder, another trainer may go on."""
        if self._run is not None:
            await self._run.close()
        await self._backend.close()

    async def __aenter__(self) -> Self:
        """Return the trainer."""
        return self

    async def __aexit__(self, *exc_info: object) -> None:
        """Close it."""
        await self.close()


def _mean_loss(updates: Sequence[Update]) -> float:
    counted = [u for u in updates if u.applied]
    samples = sum(u.samples for u in counted)
    return sum(u.loss * u.samples for u in counted) / samples if samples else math.nan
