"""Trainers that work in rounds: one step of the model from all answers of a round."""

from __future__ import annotations

from stoilo.learn.methods.federated import FederatedSettings, diloco, fedavg
from stoilo.learn.methods.largeminibatch import LargeMinibatch, LargeMinibatchSettings
from stoilo.learn.methods.sandblaster import Sandblaster, SandblasterSettings
from stoilo.learn.methods.synchronous import (
    Combine,
    Synchronous,
    SynchronousSettings,
    sum_gradients,
)
from stoilo.learn.optimizers import Optimizer
from stoilo.learn.robust import RobustSum, Rule
from stoilo.learn.trainers.places import Place
from stoilo.learn.trainers.trainer import Loss, Trainer, TrainerOptions

__all__ = [
    "DiLoCoTrainer",
    "FedAvgTrainer",
    "LargeMinibatchTrainer",
    "SandblasterTrainer",
    "SynchronousTrainer",
]


class SynchronousTrainer(Trainer):
    """Gradients of all parts, one optimiser step: for any model, with any optimiser.

    Args:
        conn: see `Trainer`.
        model: see `Trainer`.
        data: see `Trainer`.
        settings: epochs, block of a part in a step, share that ends a step, late answers.
        optimizer: of `stoilo.learn.optimizers`, or a `TorchOptimizer`.
        rule: how a step's answers are added up, over the bound on each when it arrives.
        loss: of a torch module.
        options: see `TrainerOptions`.
    """

    def __init__(
        self,
        conn: Place,
        model: object,
        data: object,
        settings: SynchronousSettings,
        optimizer: Optimizer,
        *,
        rule: Rule | None = None,
        loss: Loss | None = None,
        options: TrainerOptions | None = None,
    ) -> None:
        how = combine_by(rule)
        super().__init__(
            conn,
            model,
            data,
            lambda start, sizes: Synchronous(
                start, sizes, optimizer, settings, combine=how
            ),
            loss=loss,
            options=options,
            name="synchronous",
        )


class LargeMinibatchTrainer(Trainer):
    """Momentum SGD with a rate scaled by the number of parts, warmed up gradually.

    Args:
        conn: see `Trainer`.
        model: see `Trainer`.
        data: see `Trainer`.
        settings: epochs, block, rate of one block, momentum, warm-up.
        rule: how a step's answers are added up, over the bound on each when it arrives.
        loss: of a torch module.
        options: see `TrainerOptions`.
    """

    def __init__(
        self,
        conn: Place,
        model: object,
        data: object,
        settings: LargeMinibatchSettings,
        *,
        rule: Rule | None = None,
        loss: Loss | None = None,
        options: TrainerOptions | None = None,
    ) -> None:
        how = combine_by(rule)
        super().__init__(
            conn,
            model,
            data,
            lambda start, sizes: LargeMinibatch(start, sizes, settings, combine=how),
            loss=loss,
            options=options,
            name="largeminibatch",
        )


class SandblasterTrainer(Trainer):
    """L-BFGS over the whole data, for convex and medium-sized problems.

    The bound on answers holds from the first pass on; answers that it cuts make the
    gradient disagree with the loss, and the line search takes a shorter step.

    Args:
        conn: see `Trainer`.
        model: see `Trainer`.
        data: see `Trainer`.
        settings: portions, penalty, shards, backups, rules of the optimiser.
        loss: of a torch module.
        options: see `TrainerOptions`.
    """

    def __init__(
        self,
        conn: Place,
        model: object,
        data: object,
        settings: SandblasterSettings | None = None,
        *,
        loss: Loss | None = None,
        options: TrainerOptions | None = None,
    ) -> None:
        chosen = settings or SandblasterSettings()
        super().__init__(
            conn,
            model,
            data,
            lambda start, sizes: Sandblaster(start, sizes, chosen),
            loss=loss,
            options=options,
            name="sandblaster",
        )


class FedAvgTrainer(Trainer):
    """Rounds of local training; the weighted mean of the parts' weights is the model.

    Args:
        conn: see `Trainer`.
        model: see `Trainer`.
        data: see `Trainer`.
        settings: rounds, local work, share of the parts in a round.
        loss: of a torch module.
        options: see `TrainerOptions`.
    """

    def __init__(
        self,
        conn: Place,
        model: object,
        data: object,
        settings: FederatedSettings,
        *,
        loss: Loss | None = None,
        options: TrainerOptions | None = None,
    ) -> None:
        super().__init__(
            conn,
            model,
            data,
            lambda start, sizes: fedavg(start, sizes, settings),
            loss=loss,
            options=options,
            name="fedavg",
        )


class DiLoCoTrainer(Trainer):
    """Rounds of many local AdamW steps; an outer Nesterov step from their mean.

    Args:
        conn: see `Trainer`.
        model: see `Trainer`.
        data: see `Trainer`.
        settings: rounds and local work; give it ``optimizer="adamw"``.
        rate: of the outer step.
        momentum: of the outer step.
        loss: of a torch module.
        options: see `TrainerOptions`.
    """

    def __init__(
        self,
        conn: Place,
        model: object,
        data: object,
        settings: FederatedSettings,
        *,
        rate: float = 0.7,
        momentum: float = 0.9,
        loss: Loss | None = None,
        options: TrainerOptions | None = None,
    ) -> None:
        super().__init__(
            conn,
            model,
            data,
            lambda start, sizes: diloco(
                start, sizes, settings, rate=rate, momentum=momentum
            ),
            loss=loss,
            options=options,
            name="diloco",
        )


def combine_by(rule: Rule | None) -> Combine:
    """Return how a step's replies become one sum: the plain one without a rule."""
    return sum_gradients if rule is None else RobustSum(rule)
