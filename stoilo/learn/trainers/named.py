"""A trainer for each method, in rounds or waiting for nobody.

What `Trainer` takes (`conn`, `model`, `data`, and `Common`) is explained there.
"""

from __future__ import annotations

import copy
import math
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any, Literal, Unpack

import numpy as np

from stoilo.core.errors import UsageError
from stoilo.learn.core.models import ArrayModel
from stoilo.learn.driver.apart import Apart, ApartModel
from stoilo.learn.driver.run import Run
from stoilo.learn.kernels.array_models import make_logistic_loss
from stoilo.learn.methods.base import APPLY, LocalWork, Staleness
from stoilo.learn.methods.downpour import Downpour, DownpourSettings
from stoilo.learn.methods.federated import FederatedSettings, diloco, fedavg
from stoilo.learn.methods.logistic import LogisticRegression, LogisticSettings
from stoilo.learn.methods.optimizers import Adagrad, Optimizer, Sgd
from stoilo.learn.methods.robust import RobustSum
from stoilo.learn.methods.rules import Rule
from stoilo.learn.methods.sandblaster import Sandblaster, SandblasterSettings
from stoilo.learn.methods.ssp import Ssp, SspSettings
from stoilo.learn.methods.synchronous import (
    Combine,
    LargeMinibatch,
    LargeMinibatchSettings,
    Synchronous,
    SynchronousSettings,
    sum_gradients,
)
from stoilo.learn.methods.vcasgd import Alpha, Vcasgd, VcasgdSettings
from stoilo.learn.store.server import ParameterServer
from stoilo.learn.trainers.options import (
    Common,
    Loss,
    Place,
    TrainerOptions,
    as_model,
    as_parts,
)
from stoilo.learn.trainers.trainer import MakeMethod, Trainer


class SynchronousTrainer(Trainer):
    """Gradients of all parts, one optimiser step: for any model, with any optimiser.

    Args:
        settings: epochs, block of a part in a step, share that ends a step, late answers.
        optimizer: of `stoilo.learn.methods.optimizers`, or a `TorchOptimizer`; a copy is used,
            so that its state is this trainer's alone.
        rule: how a step's answers are added up, over the bound on each when it arrives;
            the exact weighted sum when None, `Near` where hosts may push together.
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
        settings: epochs, block, rate of one block, momentum, warm-up.
        rule: how a step's answers are added up, over the bound on each when it arrives;
            the exact weighted sum when None, `Near` where hosts may push together.
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
        make = partial(
            LargeMinibatch,
            settings=settings,
            combine=combine_by(rule),
        )
        super().__init__(conn, model, data, make, name="largeminibatch", **common)


class SandblasterTrainer(Trainer):
    """L-BFGS over the whole data, for convex and medium-sized problems.

    The bound on answers holds from the first pass on; answers that it cuts make the
    gradient disagree with the loss, and the line search takes a shorter step.

    Args:
        settings: portions, penalty, shards, backups, rules of the optimiser. With
            `planted`, no vector passes this process; `model` gives its kernels alone,
            nothing is computed again here, and the trained model is `harvest`'s to give.
    """

    def __init__(
        self,
        conn: Place,
        model: object,
        data: object,
        settings: SandblasterSettings | None = None,
        **common: Unpack[Common],
    ) -> None:
        chosen = settings or SandblasterSettings()
        self._planted = chosen.planted
        if self._planted is not None:
            options = common.get("options") or TrainerOptions()
            if options.held_out is not None or options.transport != "raw":
                raise UsageError(
                    "STO-T040",
                    "a trainer without parameters evaluates and decodes nothing",
                    hint="no held_out, and transport='raw'",
                )
            common["options"] = replace(options, home_checks=0.0)
            model = ApartModel(as_model(model, common.get("loss")), self._planted)
        make = partial(Sandblaster, settings=chosen)
        super().__init__(conn, model, data, make, name="sandblaster", **common)

    def _make_run(self, make: MakeMethod, folder: Path | None) -> Run:
        run = super()._make_run(make, folder)
        if self._planted is not None and isinstance(run.method, Sandblaster):
            run.backend = Apart(run.backend, run.method.vectors, self._planted)
        return run

    async def close(self) -> None:
        """Close the trainer, and end the shards' processes if they are some."""
        await super().close()
        if isinstance(self.run.method, Sandblaster):
            self.run.method.close()


class FedAvgTrainer(Trainer):
    """Rounds of local training; the weighted mean of the parts' weights is the model.

    Args:
        settings: rounds, local work, share of the parts in a round.
        outer: the server's optimiser, as a copy: ``Adam(rate, corrected=False)``, `Yogi`
            or `Adagrad` for FedAdam, FedYogi, FedAdagrad; the weighted mean when None.
    """

    def __init__(
        self,
        conn: Place,
        model: object,
        data: object,
        settings: FederatedSettings,
        *,
        outer: Optimizer | None = None,
        **common: Unpack[Common],
    ) -> None:
        make = partial(fedavg, settings=settings, outer=copy.deepcopy(outer))
        super().__init__(conn, model, data, make, name="fedavg", **common)


class DiLoCoTrainer(Trainer):
    """Rounds of many local AdamW steps; an outer Nesterov step from their mean.

    Args:
        settings: rounds and local work; give it ``optimizer="adamw"``.
        rate: of the outer step.
        momentum: of the outer step.
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


# How often new weights go out in an epoch of VC-ASGD, unless the caller says.
_TURNS = 4


class VCASGDTrainer(Trainer):
    """Volunteers train their part locally; their weights are mixed into the model's.

        async for update in trainer.train_epoch():
            print(update.accepted_tasks, update.loss)
        print(trainer.last_epoch_metrics().average_loss)

    Args:
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
    """

    def __init__(
        self,
        conn: Place,
        model: object,
        data: object,
        *,
        alpha: Alpha = 0.95,
        local_steps: int = 1,
        local: LocalWork | None = None,
        epochs: int = 10,
        pull: Literal["latest", "epoch"] = "latest",
        mode: Literal["mix", "delta"] = "mix",
        staleness: Staleness = APPLY,
        **common: Unpack[Common],
    ) -> None:
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
        make = partial(Vcasgd, settings=self._settings)
        super().__init__(conn, model, data, make, name="vcasgd", **common)

    def _most_out(self) -> int:
        if self.options.in_flight or self._settings.pull == "epoch":
            return super()._most_out()
        # A start is fixed when ordered: with all out at once, all would be stale.
        return math.ceil(len(self.parts) / _TURNS)


class DownpourTrainer(Trainer):
    """Each part's gradients are pushed as they come; the optimiser's state stays here.

    A part is a replica: each has one task out, from the weights at its own last push, or
    with `fetch` from weights of its own.

    Args:
        settings: passes, batch, local steps of a task, staleness, warm start.
        optimizer: at the server, as a copy that is this trainer's alone, or `AtShards`;
            Adagrad, which asynchrony harms least, when None.
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
        make = partial(Downpour, optimizer=server, settings=settings)
        super().__init__(conn, model, data, make, name="downpour", **common)


class _ClockedTrainer(Trainer):
    """A trainer whose method has a clock; with leases a part may have two tasks out."""

    _lease_s: float | None

    def _most_out(self) -> int:
        if self.options.in_flight or self._lease_s is None:
            return super()._most_out()
        return 2 * len(self.parts)  # one that is silent must not hold another's place


class SspTrainer(_ClockedTrainer):
    """Parts of the data may be a few iterations apart (SSP); each answer counts at once.

    Args:
        settings: epochs, staleness, block of a part in an iteration, local steps.
        optimizer: at the server, as a copy that is this trainer's alone; when None, plain
            steps of 0.01, for local steps of 1: the mean of their ways.
        rule: with staleness 0, how a round's answers are added up; otherwise there is the
            bound on each answer alone.
    """

    def __init__(
        self,
        conn: Place,
        model: object,
        data: object,
        settings: SspSettings,
        *,
        optimizer: Optimizer | None = None,
        rule: Rule | None = None,
        **common: Unpack[Common],
    ) -> None:
        self._lease_s = settings.lease_s
        usual = Sgd(1.0 if settings.local else 0.01)
        make = partial(
            Ssp,
            optimizer=copy.deepcopy(optimizer) or usual,
            settings=settings,
            combine=combine_by(rule),
        )
        super().__init__(conn, model, data, make, name="ssp", **common)


class LogisticTrainer(_ClockedTrainer):
    """Workers are parts of the data; the vector clock says who may go on.

    Args:
        data: targets are 0 and 1.
        settings: mode, rounds, how far a worker may be ahead (0: BSP, None: ASP), rate.
        decay: of the regression's own model, λ of ``λ|θ|²`` a sample.
        model: another model with a sum of losses; the regression's own when None.
        loss: of a torch module.
        server: keeps the parameters; one in memory when None.
        options: see `TrainerOptions`.
    """

    def __init__(
        self,
        conn: Place,
        data: object,
        settings: LogisticSettings,
        *,
        decay: float = 0.01,
        model: object = None,
        loss: Loss | None = None,
        server: ParameterServer | None = None,
        options: TrainerOptions | None = None,
    ) -> None:
        own_options = options or TrainerOptions()
        parts = as_parts(data, own_options)
        if model is None:
            width = int(np.prod(np.shape(parts[0].x)[1:]))
            make: Any = make_logistic_loss  # untyped: it travels as source
            model = ArrayModel({"theta": np.zeros(width)}, make(decay))
        self._lease_s = settings.lease_s
        super().__init__(
            conn,
            model,
            parts,
            partial(LogisticRegression, settings=settings, server=server),
            loss=loss,
            options=own_options,
            name="logistic",
        )
