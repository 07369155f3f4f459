"""Trainers that work in rounds: one step of the model from all answers of a round."""

from __future__ import annotations

import copy
from functools import partial
from typing import Unpack

from stoilo.learn.methods.federated import (
    FederatedSettings,
    diloco,
    fedavg,
)
from stoilo.learn.methods.largeminibatch import LargeMinibatch, LargeMinibatchSettings
from stoilo.learn.methods.optimizers import Optimizer
from stoilo.learn.methods.robust import RobustSum, Rule
from stoilo.learn.methods.sandblaster import Sandblaster, SandblasterSettings
from stoilo.learn.methods.synchronous import (
    Combine,
    Synchronous,
    SynchronousSettings,
    sum_gradients,
)
from stoilo.learn.trainers.options import Place
from stoilo.learn.trainers.trainer import Common, Trainer


class SynchronousTrainer(Trainer):
    """Gradients of all parts, one optimiser step: for any model, with any optimiser.

    Args:
        conn: see `Trainer`; so are `model` and `data`.
        settings: epochs, block of a part in a step, share that ends a step, late answers.
        optimizer: of `stoilo.learn.methods.optimizers`, or a `TorchOptimizer`; a copy is used,
            so that its state is this trainer's alone.
        rule: how a step's answers are added up, over the bound on each when it arrives.
        common: see `Common`.
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
        **common: Unpack[Common],
    ) -> None:
        make = partial(
            Synchronous,
            optimizer=copy.deepcopy(optimizer),
            settings=settings,
            combine=combine_by(rule),
        )
        super().__init__(conn, model, data, make, name="synchronous", **common)


class LargeMinibatchTrainer(Trainer):
    """Momentum SGD with a rate scaled by the number of parts, warmed up gradually.

    Args:
        conn: see `Trainer`; so are `model` and `data`.
        settings: epochs, block, rate of one block, momentum, warm-up.
        rule: how a step's answers are added up, over the bound on each when it arrives.
        common: see `Common`.
    """

    def __init__(
        self,
        conn: Place,
        model: object,
        data: object,
        settings: LargeMinibatchSettings,
        *,
        rule: Rule | None = None,
        **common: Unpack[Common],
    ) -> None:
        make = partial(LargeMinibatch, settings=settings, combine=combine_by(rule))
        super().__init__(conn, model, data, make, name="largeminibatch", **common)


class SandblasterTrainer(Trainer):
    """L-BFGS over the whole data, for convex and medium-sized problems.

    The bound on answers holds from the first pass on; answers that it cuts make the
    gradient disagree with the loss, and the line search takes a shorter step.

    Args:
        conn: see `Trainer`; so are `model` and `data`.
        settings: portions, penalty, shards, backups, rules of the optimiser.
        common: see `Common`.
    """

    def __init__(
        self,
        conn: Place,
        model: object,
        data: object,
        settings: SandblasterSettings | None = None,
        **common: Unpack[Common],
    ) -> None:
        make = partial(Sandblaster, settings=settings or SandblasterSettings())
        super().__init__(conn, model, data, make, name="sandblaster", **common)

    async def close(self) -> None:
        """Close the trainer, and end the shards' processes if they are some."""
        await super().close()
        if isinstance(self.run.method, Sandblaster):
            self.run.method.close()


class FedAvgTrainer(Trainer):
    """Rounds of local training; the weighted mean of the parts' weights is the model.

    Args:
        conn: see `Trainer`; so are `model` and `data`.
        settings: rounds, local work, share of the parts in a round.
        common: see `Common`.
    """

    def __init__(
        self,
        conn: Place,
        model: object,
        data: object,
        settings: FederatedSettings,
        **common: Unpack[Common],
    ) -> None:
        make = partial(fedavg, settings=settings)
        super().__init__(conn, model, data, make, name="fedavg", **common)


class DiLoCoTrainer(Trainer):
    """Rounds of many local AdamW steps; an outer Nesterov step from their mean.

    Args:
        conn: see `Trainer`; so are `model` and `data`.
        settings: rounds and local work; give it ``optimizer="adamw"``.
        rate: of the outer step.
        momentum: of the outer step.
        common: see `Common`.
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
        **common: Unpack[Common],
    ) -> None:
        make = partial(diloco, settings=settings, rate=rate, momentum=momentum)
        super().__init__(conn, model, data, make, name="diloco", **common)


def combine_by(rule: Rule | None) -> Combine:
    """Return how a step's replies become one sum: the plain one without a rule."""
    return sum_gradients if rule is None else RobustSum(rule)
