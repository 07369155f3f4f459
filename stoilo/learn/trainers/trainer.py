"""What all trainers share: a method, a model, data and a place, run epoch by epoch.

async with DownpourTrainer(conn, model, data, DownpourSettings(4, 16)) as trainer:
    async for update in trainer:
        print(update.loss, update.accepted_tasks)
trained = trainer.trained()
"""

from __future__ import annotations

import asyncio
import math
from collections.abc import AsyncIterator, Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self, TypeAlias

from stoilo.core.errors import UsageError
from stoilo.learn.data import Part, split
from stoilo.learn.evaluation import Evaluation, evaluate
from stoilo.learn.history import History, Tally
from stoilo.learn.models import Model, TorchModel
from stoilo.learn.probing import measure_seconds
from stoilo.learn.robust import Clip
from stoilo.learn.run import Run, RunSettings
from stoilo.learn.timing import Conditions, Estimate, TaskSize, estimate
from stoilo.learn.trainers.datasets import read_arrays
from stoilo.learn.trainers.places import Place, open_backend
from stoilo.learn.transport import Transport, TransportName, as_transport
from stoilo.learn.work import Method, Order, Snapshot, Update

if TYPE_CHECKING:
    from stoilo.client.options import TaskLimits
    from stoilo.core.types import Redundancy

__all__ = [
    "EpochMetrics",
    "Loss",
    "Trained",
    "Trainer",
    "TrainerOptions",
    "TrainingUpdate",
    "as_model",
]

Loss: TypeAlias = Callable[[Any, Any], Any]
"""``(output, target) -> scalar``."""
MakeMethod: TypeAlias = Callable[[Snapshot, Sequence[int]], Method]
"""First version, sizes of the data parts → the method."""


@dataclass(frozen=True, slots=True)
class EpochMetrics:
    """One epoch (one round, one accepted step, one pass: as the method counts).

    Attributes:
        epoch: from 0.
        average_loss: mean over the samples that counted, each before its update.
        samples: that counted.
        accepted_tasks: answers that counted.
        discarded_tasks: answers that came too late to count.
        staleness: mean number of versions between an answer's start and its use.
        held_out: loss and accuracy of the epoch's last version; None without such data.
    """

    epoch: int
    average_loss: float
    samples: int
    accepted_tasks: int
    discarded_tasks: int
    staleness: float
    held_out: Evaluation | None = None


@dataclass(frozen=True, slots=True)
class TrainingUpdate:
    """What one answer did.

    Attributes:
        loss: mean loss of its samples.
        accepted_tasks: answers of this epoch that counted so far.
        snapshot: the version afterwards.
        update: the method's own account.
        held_by: the model as it was given.
    """

    loss: float
    accepted_tasks: int
    snapshot: Snapshot
    update: Update
    held_by: Model

    @property
    def model(self) -> Any:  # noqa: ANN401 - a torch module or arrays
        """The researcher's module with this version's weights; arrays without torch."""
        return render(self.held_by, self.snapshot)


@dataclass(frozen=True, slots=True)
class Trained:
    """What a training came to.

    Attributes:
        snapshot: the newest version.
        epochs: metrics of the epochs that ended in this process.
        history: every update.
        tally: bytes, refusals, failures.
        held_by: the model as it was given.
    """

    snapshot: Snapshot
    epochs: tuple[EpochMetrics, ...]
    history: History
    tally: Tally
    held_by: Model

    @property
    def model(self) -> Any:  # noqa: ANN401 - a torch module or arrays
        """The researcher's module with the newest weights; arrays without torch."""
        return render(self.held_by, self.snapshot)


@dataclass(frozen=True, slots=True)
class TrainerOptions:
    """What has nothing to do with the algorithm.

    Attributes:
        tasks: parts that a dataset is split into; parts that are given stay.
        in_flight: tasks out at most; as many as parts when 0.
        tries: how often the same work may fail before the training ends.
        clip: bound on the influence of one answer; None for none.
        seed: of the splitting.
        folder: of checkpoint and history; None keeps nothing.
        held_out: a dataset; loss and accuracy on it end each epoch.
        watcher: told of each update.
        on_epoch: told of each epoch.
        redundancy: copies and quorum of a task at a server; one copy when None.
        flavor: dependency set at a server.
        limits: of a task at a server.
        transport: how answers' arrays travel: "raw", "compressed" (the same to the last
            bit), "ternary" (a twentieth of float32, unbiased and noisy), or a codec.
    """

    tasks: int = 8
    in_flight: int = 0
    tries: int = 4
    clip: Clip | None = field(default_factory=Clip)
    seed: int = 0
    folder: Path | None = None
    held_out: object = None
    watcher: Callable[[Update, Tally], None] | None = None
    on_epoch: Callable[[EpochMetrics], None] | None = None
    redundancy: Redundancy | None = None
    flavor: str | None = None
    limits: TaskLimits | None = None
    transport: Transport | TransportName = "raw"


class Trainer:
    """A method, driven; subclasses choose which.

    Args:
        conn: a connection, a backend of `stoilo.learn.backends`, or None for threads here.
        model: an `ArrayModel` or `TorchModel`, or a torch module with `loss`.
        data: pairs of sample and target (a torch dataset), a pair of arrays, or parts.
        make: makes the method.
        loss: ``(output, target) -> scalar``, mean over the samples, for a torch module.
        options: further choices.
        name: shown in lists of tasks.
    """

    def __init__(
        self,
        conn: Place,
        model: object,
        data: object,
        make: MakeMethod,
        *,
        loss: Loss | None = None,
        options: TrainerOptions | None = None,
        name: str = "run",
    ) -> None:
        self.options = options or TrainerOptions()
        self.form = as_model(model, loss)
        self.parts = as_parts(data, self.options)
        self._held_out = as_held_out(self.options.held_out)
        self._make = make
        self._backend = open_backend(
            conn, self.options.redundancy, self.options.flavor, self.options.limits
        )
        self._is_ours = conn is None or hasattr(conn, "create_task")
        self.run = self._make_run(name)
        self.epochs: list[EpochMetrics] = []
        self._updates: list[Update] = []
        self._has_started = False

    def _make_run(self, name: str) -> Run:
        settings = RunSettings(
            name=name,
            in_flight=self.options.in_flight or len(self.parts),
            tries=self.options.tries,
            clip=self.options.clip,
            folder=self.options.folder,
            transport=as_transport(self.options.transport),
        )
        method = self._make(self.form.first(), [len(part) for part in self.parts])
        watcher = self.options.watcher
        return Run(
            method, self.form, self.parts, self._backend, settings, watcher=watcher
        )

    @property
    def finished(self) -> bool:
        """Whether all that the settings name is done."""
        return self.run.method.finished

    @property
    def snapshot(self) -> Snapshot:
        """The newest version."""
        return self.run.method.snapshot

    @property
    def model(self) -> Any:  # noqa: ANN401 - a torch module or arrays
        """The researcher's module with the newest weights; arrays without torch."""
        return render(self.form, self.snapshot)

    def get_model(self) -> Any:  # noqa: ANN401 - a torch module or arrays
        """Return `model` (name of the later interface)."""
        return self.model

    @property
    def last_epoch_metrics(self) -> EpochMetrics | None:
        """What the last complete epoch came to; None before."""
        return self.epochs[-1] if self.epochs else None

    async def __aiter__(self) -> AsyncIterator[TrainingUpdate]:
        """Yield what each answer did, to the end of the training."""
        while not self.finished:
            yield await self._step()

    async def train_epoch(self) -> EpochMetrics:
        """Train to the end of the present epoch.

        Raises:
            UsageError: ``STO-T081`` when all epochs are done.
            UserError: the researcher's own code failed too often on volunteers.
        """
        if self.finished:
            raise UsageError("STO-T081", "no epoch is left to be trained")
        before = len(self.epochs)
        while len(self.epochs) == before:  # the last answer of all ends an epoch
            await self._step()
        return self.epochs[-1]

    async def train(self) -> Trained:
        """Train to the end."""
        async for _ in self:
            pass
        return self.trained()

    def trained(self) -> Trained:
        """Return what has been reached so far."""
        run = self.run
        return Trained(
            self.snapshot, tuple(self.epochs), run.history, run.tally, self.form
        )

    def estimate(self, conditions: Conditions | None = None) -> Estimate:
        """Return how long a step will take; a few samples are computed here to know.

        Raises:
            UsageError: ``STO-T040`` when the method orders nothing.
        """
        sizes = [len(part) for part in self.parts]
        method = self._make(self.form.first(), sizes)
        orders = method.next_orders(len(sizes))
        if not orders:
            raise UsageError("STO-T040", "the method has nothing to be computed")
        largest = max(orders, key=lambda order: order.samples)
        size = self._measure(largest)
        return estimate(size, len(orders), conditions or Conditions())

    def _measure(self, order: Order) -> TaskSize:
        part, snapshot = self.parts[order.part], order.snapshot
        model = sum(a.nbytes for a in snapshot.parameters.values())
        buffers = sum(a.nbytes for a in snapshot.buffers.values())
        return TaskSize(
            download_bytes=model + buffers + part.x.nbytes + part.y.nbytes,
            upload_bytes=round(model * as_transport(self.options.transport).share)
            + buffers,
            compute_s=order.samples * measure_seconds(self.form, order, part),
        )

    async def _step(self) -> TrainingUpdate:
        if not self._has_started:
            await self.run.start()
            self._has_started = True
        update = await self.run.step()
        self._updates.append(update)
        accepted = sum(one.applied for one in self._updates)
        if self.finished:
            await self.run.end()
        if update.epoch_ended or self.finished:
            await self._end_epoch(update.epoch)
        loss, snapshot = update.loss, self.snapshot
        return TrainingUpdate(loss, accepted, snapshot, update, self.form)

    async def _end_epoch(self, epoch: int) -> None:
        held_out = None
        if self._held_out is not None:
            held_out = await asyncio.to_thread(
                evaluate, self.form, self.snapshot, self._held_out
            )
        self.epochs.append(_sum_up(epoch, self._updates, held_out))
        self._updates = []
        if self.options.on_epoch is not None:
            self.options.on_epoch(self.epochs[-1])

    async def close(self) -> None:
        """Save and stop waiting; with a folder, another trainer may go on."""
        if self._has_started:
            await self.run.close()
        if self._is_ours:
            await self._backend.close()

    async def __aenter__(self) -> Self:
        """Return the trainer."""
        return self

    async def __aexit__(self, *exc_info: object) -> None:
        """Close it; a backend that was given stays open."""
        await self.close()


def as_model(model: object, loss: Loss | None = None) -> Model:
    """Return `model` as volunteers can compute with it.

    Raises:
        UsageError: ``STO-T080`` for a torch module without a loss.
    """
    if hasattr(model, "first") and hasattr(model, "kernel"):
        return model  # type: ignore[return-value]  # a Model: it has a model's methods
    if loss is None or not hasattr(model, "named_parameters"):
        raise UsageError(
            "STO-T080",
            f"a {type(model).__name__} cannot be trained like that",
            hint="give an ArrayModel, a TorchModel, or a torch module and a loss",
        )
    return TorchModel(model, loss)  # type: ignore[arg-type]  # it has a module's methods


def as_parts(data: object, options: TrainerOptions) -> list[Part]:
    """Return the data parts: those given, or the dataset split at random."""
    if isinstance(data, list) and data and all(isinstance(p, Part) for p in data):
        return list(data)
    x, y = read_arrays(data)
    return split(x, y, min(options.tasks, len(x)), seed=options.seed)


def as_held_out(data: object) -> Part | None:
    """Return held-out data as one part."""
    if data is None or isinstance(data, Part):
        return data
    return Part(*read_arrays(data))


def render(model: Model, snapshot: Snapshot) -> Any:  # noqa: ANN401 - as it was given
    """Return a version as the researcher gave the model: his module, or arrays."""
    if isinstance(model, TorchModel):
        return model.load_into(snapshot)
    return dict(snapshot.parameters)


def _sum_up(
    epoch: int, updates: Sequence[Update], held_out: Evaluation | None
) -> EpochMetrics:
    counted = [update for update in updates if update.applied]
    samples = sum(update.samples for update in counted)
    total = sum(update.loss * update.samples for update in counted)
    stale = sum(update.staleness for update in counted)
    return EpochMetrics(
        epoch=epoch,
        average_loss=total / samples if samples else math.nan,
        samples=samples,
        accepted_tasks=len(counted),
        discarded_tasks=len(updates) - len(counted),
        staleness=stale / len(counted) if counted else 0.0,
        held_out=held_out,
    )
