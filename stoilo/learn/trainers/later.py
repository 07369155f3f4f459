"""The names of the thesis's later text: one optimiser step a call, whole or partial.

trainer = SyncDataParallelTrainer(conn, model, nn.CrossEntropyLoss, {},
    torch.optim.Adam, {"lr": 1e-3})
metrics = await trainer.train_step(epoch_index, step_index, train_loader)
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Self

from stoilo.core.errors import UsageError
from stoilo.learn.trainers.dpbgd import DPBGDOptions, DPBGDTrainer
from stoilo.learn.trainers.options import Loss, Place
from stoilo.learn.trainers.timing import Conditions, Estimate

if TYPE_CHECKING:
    from torch import nn
    from torch.optim import Optimizer

    from stoilo.core.types import Redundancy

__all__ = ["StaleSyncDataParallelTrainer", "StepMetrics", "SyncDataParallelTrainer"]


@dataclass(frozen=True, slots=True)
class StepMetrics:
    """What one step did.

    Attributes:
        epoch_index: as the caller gave it.
        step_index: as the caller gave it.
        average_loss: mean over the samples that counted, before the step.
        accepted_tasks: batches that counted.
        samples: in those.
        seconds: that it took.
        waiting: see `EpochMetrics`.
    """

    epoch_index: int
    step_index: int
    average_loss: float
    accepted_tasks: int
    samples: int
    seconds: float = 0.0
    waiting: float | None = None


class SyncDataParallelTrainer:
    """Each batch of a loader is a task; all their gradients, by samples, make one step.

    Args:
        conn: a connection, a backend, or None for threads here.
        model: its weights are kept up to date.
        loss_function_factory: makes the loss, for example ``nn.CrossEntropyLoss``.
        loss_function_parameters: its keyword arguments.
        optimizer_factory: a torch optimiser's class.
        optimizer_parameters: its keyword arguments.
        redundancy_options: copies and quorum of a task; one copy when missing.
        flavor: dependency set; the smallest that holds the imports when missing.
        options: folder, seed, clip, progress and the like; a share that ends a step is
            the class's.
    """

    def __init__(
        self,
        conn: Place,
        model: nn.Module,
        loss_function_factory: Callable[..., Loss],
        loss_function_parameters: Mapping[str, Any] | None = None,
        optimizer_factory: type[Optimizer] | None = None,
        optimizer_parameters: Mapping[str, Any] | None = None,
        *,
        redundancy_options: Redundancy | None = None,
        flavor: str | None = None,
        options: DPBGDOptions | None = None,
    ) -> None:
        chosen = replace(options or DPBGDOptions(), fraction=self._fraction())
        self._trainer = DPBGDTrainer(
            conn,
            model,
            loss_function_factory(**dict(loss_function_parameters or {})),
            optimizer_factory,
            optimizer_parameters,
            redundancy_options=redundancy_options,
            flavor=flavor,
            options=chosen,
        )

    def _fraction(self) -> float:
        """Return the share of a step's answers that ends it."""
        return 1.0

    async def train_step(
        self,
        epoch_index: int,
        step_index: int,
        train_loader: Iterable[tuple[Any, Any]],
    ) -> StepMetrics:
        """Make one optimiser step over the batches that `train_loader` yields."""
        _, loss = await self._trainer.epoch(train_loader)
        done = self._trainer.epochs[-1]
        return StepMetrics(
            epoch_index,
            step_index,
            loss,
            done.accepted_tasks,
            done.samples,
            done.seconds,
            done.waiting,
        )

    def estimate(self, conditions: Conditions | None = None) -> Estimate:
        """Return how long a step over the last loader's batches takes.

        Raises:
            UsageError: ``STO-T006`` before the first step.
        """
        return self._trainer.estimate(conditions)

    @property
    def step_number(self) -> int:
        """How many steps have been made, those before a kill counted (see `start`)."""
        return self._trainer.epoch_number

    async def start(self) -> Self:
        """Take up what a killed trainer left in the folder, if one is given."""
        await self._trainer.start()
        return self

    def get_model(self) -> nn.Module:
        """Return the model with the newest weights."""
        return self._trainer.model

    async def close(self) -> None:
        """Let the place go."""
        await self._trainer.close()

    async def __aenter__(self) -> Self:
        """Take up the folder and return the trainer."""
        return await self.start()

    async def __aexit__(self, *exc_info: object) -> None:
        """Close it."""
        await self.close()


class StaleSyncDataParallelTrainer(SyncDataParallelTrainer):
    """The same without waiting for the slowest: a step ends with a share of its answers.

    Args:
        min_completed_fraction: of the batches, rounded up: 28 of 32 unless told.
        discard_late_results: only True: see ``STO-T083``.
        arguments: of `SyncDataParallelTrainer`, by their places.
        options: of it, by their names.
    """

    def __init__(
        self,
        *arguments: Any,  # noqa: ANN401 - of the class above, checked there
        min_completed_fraction: float = 0.875,
        discard_late_results: bool = True,
        **options: Any,  # noqa: ANN401 - of the class above, checked there
    ) -> None:
        if not discard_late_results:
            raise UsageError(
                "STO-T083",
                "late answers cannot count in a later step of other data",
                hint="leave discard_late_results=True, or use SynchronousTrainer",
            )
        self.min_completed_fraction = min_completed_fraction
        super().__init__(*arguments, **options)

    def _fraction(self) -> float:
        """Return the share of a step's answers that ends it."""
        return self.min_completed_fraction
