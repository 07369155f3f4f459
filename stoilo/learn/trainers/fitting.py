"""`fit`: a model, data and the name of a method; what volunteers make of it comes back.

trained = await stoilo.learn.fit("vcasgd", model, (x, y), conn, loss=loss, epochs=5)
trained.model, trained.epochs[-1].average_loss
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any

from stoilo.core.errors import UsageError
from stoilo.learn.core.models import Model, TorchModel, find_momentum
from stoilo.learn.methods.base import LocalWork
from stoilo.learn.methods.downpour import DownpourSettings
from stoilo.learn.methods.federated import FederatedSettings
from stoilo.learn.methods.lbfgs import Rules
from stoilo.learn.methods.logistic import LogisticSettings
from stoilo.learn.methods.optimizers import Adam, Optimizer
from stoilo.learn.methods.sandblaster import SandblasterSettings
from stoilo.learn.methods.synchronous import LargeMinibatchSettings, SynchronousSettings
from stoilo.learn.trainers.epochs import Trained
from stoilo.learn.trainers.named import (
    DiLoCoTrainer,
    DownpourTrainer,
    FedAvgTrainer,
    LargeMinibatchTrainer,
    LogisticTrainer,
    SandblasterTrainer,
    SynchronousTrainer,
    VCASGDTrainer,
)
from stoilo.learn.trainers.options import (
    Loss,
    Place,
    StopRule,
    TrainerOptions,
    as_model,
)
from stoilo.learn.trainers.progress import Conditions, Display, Progress
from stoilo.learn.trainers.trainer import Trainer


@dataclass(frozen=True, slots=True)
class _Request:
    """What `fit` was asked for, the same for every method."""

    place: Place
    model: Model | None
    data: object
    epochs: int
    batch: int
    rate: float | None
    optimizer: Optimizer | None
    options: TrainerOptions
    further: Mapping[str, Any]

    def given(self) -> tuple[Place, object, object]:
        """Return what every trainer begins with."""
        return self.place, self.model, self.data

    def rate_or(self, rate: float) -> float:
        """Return the learning rate, or the method's usual one."""
        return rate if self.rate is None else self.rate

    def split_off(self, *names: str) -> tuple[dict[str, Any], dict[str, Any]]:
        """Return further settings: those of these names, and the others."""
        ours = {n: v for n, v in self.further.items() if n in names}
        return ours, {n: v for n, v in self.further.items() if n not in names}

    def local(self, rate: float, kind: str = "sgd") -> tuple[LocalWork, dict[str, Any]]:
        """Return what a volunteer does with its part, and the other settings."""
        ours, rest = self.split_off("steps", "momentum")
        work: dict[str, Any] = {"optimizer": kind, **ours}
        return LocalWork(self.rate_or(rate), self.batch, **work), rest


def _dpbgd(request: _Request) -> Trainer:
    ours, rest = request.split_off("rule")
    if isinstance(request.model, TorchModel):
        rest = {"bn_momentum": find_momentum(request.model.module), **rest}
    settings = SynchronousSettings(request.epochs, seed=request.options.seed, **rest)
    optimizer = request.optimizer or Adam(request.rate_or(0.01))
    return SynchronousTrainer(
        *request.given(), settings, optimizer, options=request.options, **ours
    )


def _sync(request: _Request) -> Trainer:
    ours, rest = request.split_off("rule")
    rest = {"seed": request.options.seed, **rest}
    settings = LargeMinibatchSettings(
        request.epochs, request.batch, request.rate_or(0.01), **rest
    )
    return LargeMinibatchTrainer(
        *request.given(), settings, options=request.options, **ours
    )


def _vcasgd(request: _Request) -> Trainer:
    ours, rest = request.split_off("steps", "momentum")
    steps = ours.pop("steps", 0)
    return VCASGDTrainer(
        *request.given(),
        local=LocalWork(request.rate_or(0.1), request.batch, **ours),
        epochs=request.epochs,
        options=request.options,
        **{"local_steps": steps, **rest},
    )


def _downpour(request: _Request) -> Trainer:
    rest = {
        "seed": request.options.seed,
        "rate": request.rate_or(0.01),
        **request.further,
    }
    settings = DownpourSettings(request.epochs, request.batch, **rest)
    return DownpourTrainer(
        *request.given(), settings, optimizer=request.optimizer, options=request.options
    )


def _sandblaster(request: _Request) -> Trainer:
    rest = {"rules": Rules(iterations=request.epochs), **request.further}
    settings = SandblasterSettings(**rest)
    return SandblasterTrainer(*request.given(), settings, options=request.options)


def _fedavg(request: _Request) -> Trainer:
    local, rest = request.local(0.1)
    settings = FederatedSettings(request.epochs, local, **rest)
    return FedAvgTrainer(*request.given(), settings, options=request.options)


def _diloco(request: _Request) -> Trainer:
    ours, _ = request.split_off("outer_rate", "outer_momentum")
    outer = {name.removeprefix("outer_"): value for name, value in ours.items()}
    local, rest = request.local(0.001, "adamw")
    rest = {name: value for name, value in rest.items() if name not in ours}
    settings = FederatedSettings(request.epochs, local, **rest)
    return DiLoCoTrainer(*request.given(), settings, options=request.options, **outer)


def _logistic(request: _Request) -> Trainer:
    ours, rest = request.split_off("decay", "server")
    known: dict[str, Any] = {"mode": "dgd", "seed": request.options.seed, **rest}
    settings = LogisticSettings(
        rounds=request.epochs, rate=request.rate_or(0.001), **known
    )
    return LogisticTrainer(
        request.place,
        request.data,
        settings,
        model=request.model,
        options=request.options,
        **ours,
    )


# How each method's trainer is made.
METHODS: Mapping[str, Callable[[_Request], Trainer]] = {
    "dpbgd": _dpbgd,
    "vcasgd": _vcasgd,
    "downpour": _downpour,
    "sandblaster": _sandblaster,
    "sync": _sync,
    "fedavg": _fedavg,
    "diloco": _diloco,
    "logistic": _logistic,
}


def make_trainer(
    method: str,
    model: object,
    data: object,
    place: Place = None,
    *,
    loss: Loss | None = None,
    epochs: int = 10,
    batch: int = 32,
    rate: float | None = None,
    optimizer: Optimizer | None = None,
    options: TrainerOptions | None = None,
    **settings: Any,  # noqa: ANN401 - of the method's settings class, checked there
) -> Trainer:
    """Return the trainer of `method`; the arguments are those of `fit`.

    Raises:
        UsageError: ``STO-T005``, ``STO-T040``.
    """
    make = METHODS.get(method)
    if make is None:
        raise UsageError(
            "STO-T040",
            f"no training method is named {method!r}",
            hint=f"methods: {', '.join(METHODS)}",
        )
    own = method == "logistic" and model is None
    return make(
        _Request(
            place,
            None if own else as_model(model, loss),
            data,
            epochs,
            batch,
            rate,
            optimizer,
            options or TrainerOptions(),
            settings,
        )
    )


async def fit(
    method: str,
    model: object,
    data: object,
    place: Place = None,
    *,
    loss: Loss | None = None,
    epochs: int = 10,
    batch: int = 32,
    rate: float | None = None,
    optimizer: Optimizer | None = None,
    held_out: object = None,
    stop: StopRule | None = None,
    progress: bool | Display = False,
    conditions: Conditions | None = None,
    options: TrainerOptions | None = None,
    **settings: Any,  # noqa: ANN401 - of the method's settings class, checked there
) -> Trained:
    """Train `model` on `data` by `method` and return what came of it.

    Args:
        method: dpbgd, vcasgd, downpour, sandblaster, sync, fedavg, diloco or logistic.
        model: an `ArrayModel`, a `TorchModel`, or a torch module with `loss`; for
            logistic None means the regression's own.
        data: a torch dataset, a pair (inputs, targets), or a list of parts.
        place: a connection, a backend, or None for threads of this process.
        loss: ``(output, target) -> scalar``, mean over the samples, for a torch module.
        epochs: passes, rounds, or for sandblaster accepted steps at most.
        batch: samples of one step of a volunteer (of one part in a step, for sync).
        rate: learning rate; each method has a usual one.
        optimizer: at the server, for dpbgd and downpour.
        held_out: a dataset; loss and accuracy on it end each epoch.
        stop: ends the training before its epochs are done.
        progress: show the time model's estimate, then what happens.
        conditions: of the volunteers, for that estimate.
        options: what has nothing to do with the algorithm.
        settings: further ones of the method's settings class.

    Raises:
        UsageError: ``STO-T005``, ``STO-T040``, or what the method says of its settings.
        UserError: the researcher's own code failed too often on volunteers.
    """
    chosen = options or TrainerOptions()
    if held_out is not None:
        chosen = replace(chosen, held_out=held_out)
    if stop is not None:
        chosen = replace(chosen, stop=stop)
    shown = Progress(progress)
    trainer = make_trainer(
        method,
        model,
        data,
        place,
        loss=loss,
        epochs=epochs,
        batch=batch,
        rate=rate,
        optimizer=optimizer,
        options=shown.watch(chosen),
        **settings,
    )
    async with trainer:
        with shown:
            await shown.begin(lambda: trainer.estimate(conditions))
            return await trainer.train()
