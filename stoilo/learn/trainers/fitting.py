"""`fit`: a model, data and the name of a method; what volunteers make of it comes back.

trained = await stoilo.learn.fit("vcasgd", model, (x, y), conn, loss=loss, epochs=5)
trained.model, trained.epochs[-1].average_loss
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any, Literal

from stoilo.core.errors import UsageError
from stoilo.learn.core.models import Model, TorchModel, find_least_loss
from stoilo.learn.core.orders import Snapshot
from stoilo.learn.driver.run import Run, RunSettings
from stoilo.learn.methods.base import LocalWork
from stoilo.learn.methods.buffers import find_momentum
from stoilo.learn.methods.downpour import DownpourSettings
from stoilo.learn.methods.evaluating import Evaluating
from stoilo.learn.methods.federated import FederatedSettings
from stoilo.learn.methods.lbfgs import Rules
from stoilo.learn.methods.logistic import LogisticSettings
from stoilo.learn.methods.optimizers import Adam, Optimizer, Sgd
from stoilo.learn.methods.sandblaster import SandblasterSettings
from stoilo.learn.methods.schedules import Schedule
from stoilo.learn.methods.ssp import SspSettings
from stoilo.learn.methods.synchronous import LargeMinibatchSettings, SynchronousSettings
from stoilo.learn.trainers.epochs import Trained
from stoilo.learn.trainers.evaluation import Evaluation
from stoilo.learn.trainers.named import (
    DiLoCoTrainer,
    DownpourTrainer,
    FedAvgTrainer,
    LargeMinibatchTrainer,
    LogisticTrainer,
    SandblasterTrainer,
    SspTrainer,
    SynchronousTrainer,
    VCASGDTrainer,
)
from stoilo.learn.trainers.options import (
    Loss,
    Place,
    StopRule,
    TrainerOptions,
    as_model,
    as_parts,
    open_backend,
)
from stoilo.learn.trainers.progress import Conditions, Display
from stoilo.learn.trainers.trainer import Trainer


@dataclass(frozen=True, slots=True)
class _Request:
    """What `fit` was asked for, the same for every method."""

    place: Place
    model: Model | None
    data: object
    options: TrainerOptions
    further: dict[str, Any]  # settings of the method's own; `pop` takes some away
    epochs: int = 10
    batch: int = 32
    rate: float | None = None
    optimizer: Optimizer | None = None

    def given(self) -> tuple[Place, object, object]:
        """Return what every trainer begins with."""
        return self.place, self.model, self.data

    def rate_or(self, rate: float) -> float:
        """Return the learning rate, or the method's usual one."""
        return rate if self.rate is None else self.rate

    def pop(self, *names: str) -> dict[str, Any]:
        """Take those of these names out of the further settings."""
        return {n: self.further.pop(n) for n in names if n in self.further}

    def seeded(self) -> dict[str, Any]:
        """Return the further settings, with the options' seed unless they have one."""
        return {"seed": self.options.seed, **self.further}

    def local(self, rate: float, kind: Literal["sgd", "adamw"] = "sgd") -> LocalWork:
        """Return what a volunteer does with its part."""
        own = self.pop("steps", "momentum", "proximal")
        return LocalWork(self.rate_or(rate), self.batch, optimizer=kind, **own)


def _dpbgd(asked: _Request) -> Trainer:
    rule = asked.pop("rule")
    if isinstance(asked.model, TorchModel):
        asked.further.setdefault("bn_momentum", find_momentum(asked.model.module))
    settings = SynchronousSettings(asked.epochs, **asked.seeded())
    optimizer = asked.optimizer or Adam(asked.rate_or(0.01))
    return SynchronousTrainer(
        *asked.given(), settings, optimizer, options=asked.options, **rule
    )


def _sync(asked: _Request) -> Trainer:
    rule, rate = asked.pop("rule"), asked.rate_or(0.01)
    settings = LargeMinibatchSettings(asked.epochs, asked.batch, rate, **asked.seeded())
    return LargeMinibatchTrainer(
        *asked.given(), settings, options=asked.options, **rule
    )


def _vcasgd(asked: _Request) -> Trainer:
    local = asked.local(0.1)
    further: dict[str, Any] = {"local_steps": local.steps, **asked.further}
    return VCASGDTrainer(
        *asked.given(),
        local=local,
        epochs=asked.epochs,
        options=asked.options,
        **further,
    )


def _downpour(asked: _Request) -> Trainer:
    rest: dict[str, Any] = {"rate": asked.rate_or(0.01), **asked.seeded()}
    settings = DownpourSettings(asked.epochs, asked.batch, **rest)
    return DownpourTrainer(
        *asked.given(), settings, optimizer=asked.optimizer, options=asked.options
    )


def _sandblaster(asked: _Request) -> Trainer:
    rest = {"rules": Rules(iterations=asked.epochs), **asked.further}
    settings = SandblasterSettings(**rest)
    return SandblasterTrainer(*asked.given(), settings, options=asked.options)


def _fedavg(asked: _Request) -> Trainer:
    local, outer = asked.local(0.1), asked.pop("outer")
    settings = FederatedSettings(asked.epochs, local, **asked.further)
    return FedAvgTrainer(*asked.given(), settings, options=asked.options, **outer)


def _diloco(asked: _Request) -> Trainer:
    outer = asked.pop("outer_rate", "outer_momentum")
    own = {name.removeprefix("outer_"): value for name, value in outer.items()}
    local = asked.local(0.001, "adamw")
    settings = FederatedSettings(asked.epochs, local, **asked.further)
    return DiLoCoTrainer(*asked.given(), settings, options=asked.options, **own)


def _ssp(asked: _Request) -> Trainer:
    rule, further = asked.pop("rule"), asked.seeded()
    if isinstance(asked.model, TorchModel):
        further.setdefault("bn_momentum", find_momentum(asked.model.module))
    settings = SspSettings(asked.epochs, **further)
    optimizer = asked.optimizer
    if optimizer is None and asked.rate is not None:
        optimizer = Sgd(asked.rate)
    return SspTrainer(
        *asked.given(), settings, optimizer=optimizer, options=asked.options, **rule
    )


def _logistic(asked: _Request) -> Trainer:
    own = asked.pop("decay", "server")
    known: dict[str, Any] = {"mode": "dgd", **asked.seeded()}
    settings = LogisticSettings(rounds=asked.epochs, rate=asked.rate_or(0.001), **known)
    own |= {"model": asked.model, "options": asked.options}
    return LogisticTrainer(asked.place, asked.data, settings, **own)


# How each method's trainer is made.
METHODS: Mapping[str, Callable[[_Request], Trainer]] = {
    "dpbgd": _dpbgd,
    "vcasgd": _vcasgd,
    "downpour": _downpour,
    "sandblaster": _sandblaster,
    "sync": _sync,
    "fedavg": _fedavg,
    "diloco": _diloco,
    "ssp": _ssp,
    "logistic": _logistic,
}


def make_trainer(
    method: str,
    model: object,
    data: object,
    place: Place = None,
    *,
    loss: Loss | None = None,
    options: TrainerOptions | None = None,
    **settings: Any,  # noqa: ANN401 - as `fit` has them
) -> Trainer:
    """Return the trainer of `method`; the arguments are those of `fit`.

    Raises:
        UsageError: ``STO-T040``.
    """
    make = METHODS.get(method)
    if make is None:
        raise UsageError(
            "STO-T040",
            f"no training method is named {method!r}",
            hint=f"methods: {', '.join(METHODS)}",
        )
    form = as_model(model, loss) if model is not None or method != "logistic" else None
    named = ("epochs", "batch", "rate", "optimizer")
    known = {n: settings.pop(n) for n in named if n in settings}
    asked = _Request(place, form, data, options or TrainerOptions(), settings, **known)
    try:
        return make(asked)
    except TypeError as error:
        # Python's own words name the one that nobody takes
        odd = [name for name in settings if f"keyword argument '{name}'" in str(error)]
        if not odd:
            raise
        raise UsageError(
            "STO-T040",
            f"{method} has no setting {odd[0]!r}",
            hint=f"the reference of stoilo.learn lists the settings of {method}",
        ) from None


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
    schedule: Schedule | None = None,
    progress: bool | Display = False,
    conditions: Conditions | None = None,
    options: TrainerOptions | None = None,
    **settings: Any,  # noqa: ANN401 - of the method's settings class, checked there
) -> Trained:
    """Train `model` on `data` by `method` and return what came of it.

    Args:
        method: dpbgd, vcasgd, downpour, sandblaster, sync, fedavg, diloco, ssp or
            logistic.
        model: an `ArrayModel`, a `TorchModel`, or a torch module with `loss`; for
            logistic None means the regression's own.
        data: a torch dataset, a pair (inputs, targets), or a list of parts.
        place: a connection, a backend, or None for threads of this process.
        loss: ``(output, target) -> scalar``, mean over the samples, for a torch module.
        epochs: passes, rounds, or for sandblaster accepted steps at most.
        batch: samples of one step of a volunteer (of one part in a step, for sync).
        rate: learning rate; each method has a usual one.
        optimizer: at the server, for dpbgd, downpour and ssp.
        held_out: a dataset; loss and accuracy on it end each epoch.
        stop: ends the training before its epochs are done.
        schedule: number of the update → factor of the learning rate.
        progress: show the time model's estimate, then what happens.
        conditions: of the volunteers, for that estimate.
        options: what has nothing to do with the algorithm.
        settings: further ones of the method's settings class.

    Raises:
        UsageError: ``STO-T040``, or what the method says of its settings.
        UserError: the researcher's own code failed too often on volunteers.
    """
    chosen = options or TrainerOptions()
    given: dict[str, Any] = {
        "held_out": held_out,
        "stop": stop,
        "schedule": schedule,
        "progress": progress,
        "conditions": conditions,
    }
    # What the options say stays where nothing is said here.
    chosen = replace(chosen, **{n: v for n, v in given.items() if v})
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
        options=chosen,
        **settings,
    )
    async with trainer:
        return await trainer.train()


async def evaluate_on(
    place: Place,
    model: object,
    data: object,
    *,
    loss: Loss | None = None,
    snapshot: Snapshot | None = None,
    block: int = 0,
    options: TrainerOptions | None = None,
) -> Evaluation:
    """Return how good a version is on held-out data, computed where `place` computes.

    An answer is checked like a gradient's, but its numbers are what a volunteer says: have
    each task computed twice (`redundancy` in the options) where much hangs on them.

    Args:
        place: a connection, a backend, or None for threads of this process.
        model: as for `fit`.
        data: held-out: a dataset, a pair, or parts.
        loss: of a torch module.
        snapshot: the version; the model's own weights when None.
        block: most samples of a task; 0 for a task a part.
        options: `tasks`, `folder`, `least_loss`, `tries`, `redundancy` and so on.

    Raises:
        UserError: the researcher's own code failed too often on volunteers.
    """
    form, chosen = as_model(model, loss), options or TrainerOptions()
    parts = as_parts(data, chosen)
    method = Evaluating(snapshot or form.first(), [len(p) for p in parts], block)
    backend = open_backend(place, chosen.redundancy, chosen.flavor, chosen.limits)
    least = chosen.least_loss
    settings = RunSettings(
        name="evaluate",
        in_flight=chosen.in_flight or len(parts),
        tries=chosen.tries,
        folder=chosen.folder,
        least_loss=find_least_loss(form) if least is None else least,
        home_checks=chosen.home_checks,
    )
    run = Run(method, form, parts, backend, settings)
    try:
        await run.start()
        await run.finish()
    finally:
        await run.close()
        if backend is not place:
            await backend.close()
    return Evaluation(method.loss, method.accuracy, sum(map(len, parts)))
