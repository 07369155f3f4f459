"""Parallel-SGD: blocks on nodes, a sync type, an operator, a gradient rule; any mix is a run.

    found = await learn.parallel(model, data, conn, nodes=4, redundancy=2, epochs=2)
    found.loss, found.accuracy, found.disputes

Each mix is one of the methods, under `Copied`. A node is a number that tasks carry: whoever is
free computes for it, and a machine that dies takes no node along.
"""

from __future__ import annotations

import copy
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any, Literal, TypeAlias, get_args

from stoilo.core.errors import UsageError
from stoilo.learn.core.assignments import Assignment, assign_duplicate, assign_iid
from stoilo.learn.core.data import Part, read_arrays, split_by_label
from stoilo.learn.core.models import Model, TorchModel
from stoilo.learn.core.orders import Snapshot
from stoilo.learn.core.states import Stateful
from stoilo.learn.core.tensors import Array, Tensors, scale
from stoilo.learn.driver.codecs import PerLayer, Transport
from stoilo.learn.driver.transport import TransportName, as_transport
from stoilo.learn.methods import optimizers
from stoilo.learn.methods.base import LocalWork, MethodBase
from stoilo.learn.methods.buffers import Momenta, find_momentum
from stoilo.learn.methods.copies import Copied
from stoilo.learn.methods.downpour import Downpour, DownpourSettings
from stoilo.learn.methods.federated import FederatedSettings, Gossip, Regional, fedavg
from stoilo.learn.methods.optimizers import Optimizer, Sgd
from stoilo.learn.methods.overlapping import DoubleBuffered
from stoilo.learn.methods.rules import Rule
from stoilo.learn.methods.ssp import Ssp, SspSettings
from stoilo.learn.methods.synchronous import Synchronous, SynchronousSettings
from stoilo.learn.trainers.epochs import Trained
from stoilo.learn.trainers.named import combine_by
from stoilo.learn.trainers.options import (
    Loss,
    Place,
    TrainerOptions,
    as_model,
    set_schedule,
)
from stoilo.learn.trainers.reclaiming import judge, reclaim
from stoilo.learn.trainers.trainer import Trainer

Sync: TypeAlias = Literal["bsp", "ssp", "asp", "dc-asgd"]
Operator: TypeAlias = Literal[
    "descent", "ascent", "double buffering", "parameters", "federated", "gossip"
]
Codec: TypeAlias = "Transport | TransportName"


def inverse_root(update: int) -> float:
    """Return the factor ``1/√t`` of update t, from 1: the rule "decay"."""
    return float((update + 1) ** -0.5)


# Gradient rules with the defaults of Parallel-SGD.
RULES: Mapping[str, Optimizer] = {
    "sgd": Sgd(0.01),
    "adam": optimizers.Adam(1e-3),
    "adagrad": optimizers.Adagrad(0.01, epsilon=1e-7),
    "rmsprop": optimizers.RmsProp(0.01, kept=0.9),
    "adadelta": optimizers.AdaDelta(),
    "decay": Sgd(0.03),  # times `inverse_root`
}


@dataclass(frozen=True, slots=True)
class ParallelSettings:
    """How to train.

    Attributes:
        nodes: how many compute.
        sync: "bsp" waits for a step's answers, "ssp" lets blocks be `ahead` steps apart,
            "asp" waits for nobody, "dc-asgd" corrects late gradients besides.
        operator: what is done with answers: the mean gradient's step down ("descent") or up;
            "double buffering", the next step's tasks while one is collected; "parameters",
            whose mean counts; "federated", the same after a pass over each block's samples;
            "gossip", as that with a replica for each block, of which pairs average.
        rule: how a gradient becomes a step: a name of `RULES` or an optimiser, as a copy.
        rate: of volunteers' local steps ("parameters", "federated").
        epochs: passes over the data.
        block_size: samples of a block, on average where `ratios` differ.
        redundancy: owners of each block.
        assignment: "iid", a block for each set of owners; "duplicate", for each group of
            nodes that follow each other; or one made before.
        ratios: of the blocks' sizes; equal when empty.
        disorder: the blocks differ in their labels but for this share of samples; None:
            they are slices of the batch.
        shuffled: in each epoch a block's samples come in another order (always so with
            other syncs than "bsp", and "federated").
        period: local steps between two means of parameters.
        wait_for: blocks that end a step, their exact weights counted; 0 for all.
        backups: share of a step's tasks, as in `SynchronousSettings`.
        ahead: steps that "ssp" allows.
        agree: equal answers that a block needs; 0 for two where it has several owners. 1
            takes the first of several: speed instead of proof.
        timeout_s: after so long, s, a task goes out once more; then "bsp" ends with
            ``STO-T021``, "ssp" goes on without the block, the others go on as ever.
        robust: how a step's answers are added up, see `SynchronousTrainer`.
        regions: in so many groups first ("bsp"); 0 for none.
        codec: of answers, or one for each array by patterns of names.
        title: of tasks and files.
    """

    nodes: int
    sync: Sync = "bsp"
    operator: Operator = "descent"
    rule: str | Optimizer = "adam"
    rate: float = 0.01
    epochs: int = 10
    block_size: int = 64
    redundancy: int = 1
    assignment: Literal["iid", "duplicate"] | Assignment = "iid"
    ratios: tuple[float, ...] = ()
    disorder: float | None = None
    shuffled: bool = True
    period: int = 1
    wait_for: int = 0
    backups: float = 0.0
    ahead: int = 1
    agree: int = 0
    timeout_s: float | None = None
    robust: Rule | None = None
    regions: int = 0
    codec: Codec | Mapping[str, Codec] = "raw"
    title: str = "P-SGD"

    def __post_init__(self) -> None:
        """Refuse mixes that make no sense."""
        known = self.sync in get_args(Sync) and self.operator in get_args(Operator)
        known &= not isinstance(self.rule, str) or self.rule in RULES
        known &= bool(re.fullmatch(r"[\w.-]{1,60}", self.title))
        _check(known, "names", f"sync, operator, a rule of {', '.join(RULES)}, a title")
        steps = self.operator in ("descent", "ascent")
        waits = self.sync == "bsp"
        local = self.operator == "parameters"
        _check(waits or steps, self.operator, "it takes rounds: sync='bsp'")
        summed = waits and self.operator not in ("federated", "gossip")
        whole = not (self.backups or self.robust or self.regions)
        _check(summed or whole, "rule of rounds", "robust, regions, backups: of 'bsp'")
        rounds = waits and self.operator != "gossip"
        _check(rounds or not self.wait_for, "wait_for", "it is of sync='bsp'")
        _check(self.period == 1 or local, "period", "it is of operator='parameters'")
        own = self.operator == "gossip" and not isinstance(self.rule, str)
        _check(not own, "a rule", "replicas meet in their mean: gossip has none")
        fits = min(self.block_size, self.period) >= 1 and self.wait_for >= 0
        _check(fits, "block_size, period or wait_for", "at least one sample and step")

    def assign(self) -> Assignment:
        """Return who computes which block."""
        make = {"iid": assign_iid, "duplicate": assign_duplicate}
        found = (
            make[self.assignment](self.nodes, self.redundancy)
            if isinstance(self.assignment, str)
            else self.assignment
        )
        return found.adjust_ratio(self.ratios) if self.ratios else found

    def make_optimizer(self) -> Optimizer:
        """Return the gradient rule, as a copy."""
        if self.operator in ("parameters", "federated"):
            # The mean itself counts, unless an outer optimiser is named.
            usual: Optimizer = Sgd(1.0)
            return usual if isinstance(self.rule, str) else copy.deepcopy(self.rule)
        rule = RULES[self.rule] if isinstance(self.rule, str) else self.rule
        fresh = copy.deepcopy(rule)
        return Ascent(fresh) if self.operator == "ascent" else fresh


def _check(fits: bool, what: str, hint: str) -> None:
    if not fits:
        raise UsageError("STO-T040", f"{what} cannot be had like that", hint=hint)


class Ascent(Stateful):
    """An optimiser that goes up: the function's value is to grow."""

    parts = ("optimizer",)

    def __init__(self, optimizer: Optimizer) -> None:
        self.optimizer = optimizer

    @property
    def rate(self) -> float:
        """The learning rate."""
        return self.optimizer.rate

    @rate.setter
    def rate(self, rate: float) -> None:
        self.optimizer.rate = rate

    def step(self, parameters: Tensors, gradient: Tensors) -> dict[str, Array]:
        """Return the parameters after a step against the descent."""
        return self.optimizer.step(parameters, scale(gradient, -1.0))


class ParallelTrainer(Trainer):
    """A mix of Parallel-SGD as a trainer; `parallel` is the short way.

    What it takes is explained at `Trainer`; parts, where given, are the blocks.
    """

    def __init__(
        self,
        conn: Place,
        model: object,
        data: object,
        settings: ParallelSettings,
        *,
        loss: Loss | None = None,
        options: TrainerOptions | None = None,
    ) -> None:
        given, form = options or TrainerOptions(), as_model(model, loss)
        self.assignment = settings.assign()
        schedule = given.schedule
        if settings.rule == "decay" and schedule is None:
            schedule = inverse_root
        make = partial(
            _make, form, settings, self.assignment, given.seed, schedule=schedule
        )
        self._copies = sum(map(len, self.assignment.owners))
        # Rescued tasks, and those of a second step, must find room beside the others.
        self._copies *= 1 + (settings.timeout_s is not None)
        self._copies *= 1 + (settings.operator == "double buffering")
        codec = _as_codec(settings.codec, given)
        super().__init__(
            conn,
            form,
            _deal(data, settings, self.assignment, given.seed),
            make,
            options=replace(given, schedule=None, transport=codec),
            name=settings.title,
        )

    def _most_out(self) -> int:
        return self.options.in_flight or self._copies


def _as_codec(codec: Codec | Mapping[str, Codec], options: TrainerOptions) -> Transport:
    if isinstance(codec, Mapping):
        return PerLayer(tuple((name, as_transport(c)) for name, c in codec.items()))
    return as_transport(options.transport if codec == "raw" else codec)


def _deal(
    data: object, settings: ParallelSettings, assignment: Assignment, seed: int
) -> list[Part]:
    if isinstance(data, list) and data and all(isinstance(one, Part) for one in data):
        count = f"{len(data)} parts for {assignment.blocks} blocks"
        _check(len(data) == assignment.blocks, count, "a part for each block")
        return data
    whole = data if isinstance(data, Part) else Part(*read_arrays(data))
    if settings.disorder is None:
        return assignment.deal(whole, settings.block_size)
    labels: Any = whole.y  # checked there
    blocks, disorder = assignment.blocks, settings.disorder
    return split_by_label(whole.x, labels, blocks, disorder=disorder, seed=seed)


def _make(
    form: Model,
    settings: ParallelSettings,
    assignment: Assignment,
    seed: int,
    start: Snapshot,
    sizes: Sequence[int],
    *,
    schedule: Any = None,  # noqa: ANN401 - checked where it is set
) -> Copied:
    inner: Any = _make_method(form, settings, assignment, seed, start, sizes)
    set_schedule(inner, schedule)
    return Copied(
        inner,
        assignment,
        agree=settings.agree or min(2, assignment.redundancy),
        # "ssp" has leases of its own.
        timeout_s=None if settings.sync == "ssp" else settings.timeout_s,
        waits=settings.sync == "bsp",
    )


def _make_method(
    form: Model,
    asked: ParallelSettings,
    assignment: Assignment,
    seed: int,
    start: Snapshot,
    sizes: Sequence[int],
) -> MethodBase:
    optimizer, passes = asked.make_optimizer(), asked.epochs
    fraction = asked.wait_for / assignment.blocks if asked.wait_for else 1.0
    steps = LocalWork(asked.rate, asked.block_size)
    rounds = FederatedSettings(passes, steps, fraction=fraction, seed=seed)
    if asked.operator == "gossip":
        return Gossip(start, sizes, rounds)
    if asked.operator == "federated":
        return fedavg(start, sizes, rounds, optimizer)
    size = asked.block_size * asked.period
    if asked.sync in ("asp", "dc-asgd"):
        strength = 2.0 if asked.sync == "dc-asgd" else 0.0
        own = DownpourSettings(passes, size, seed=seed, compensation=strength)
        return Downpour(start, sizes, optimizer, own)
    momentum = find_momentum(form.module) if isinstance(form, TorchModel) else Momenta()
    if asked.sync == "ssp":
        lease = asked.timeout_s
        clocked = SspSettings(passes, asked.ahead, size, None, lease, seed, momentum)
        return Ssp(start, sizes, optimizer, clocked)
    settings = SynchronousSettings(
        passes,
        assignment.sizes(size),
        fraction,
        seed=seed,
        bn_momentum=momentum,
        backups=asked.backups,
        local=steps if asked.operator == "parameters" else None,
        in_order=not asked.shuffled,
    )
    kind = DoubleBuffered if asked.operator == "double buffering" else Synchronous
    combine: Any = combine_by(asked.robust)
    if asked.regions:
        combine = Regional(asked.regions, combine)
    return kind(start, sizes, optimizer, settings, combine=combine)


@dataclass(frozen=True, slots=True)
class ParallelResult:
    """What a mix came to.

    Attributes:
        loss: of the last epoch: on the held-out data, else the mean of what volunteers say.
        accuracy: on the held-out data; None without.
        disputes: keys of answers that stood against an agreement; a key ends in its node.
        trained: the model, metrics of all epochs, every update.
        files: what was written; see `reclaim`.
    """

    loss: float
    accuracy: float | None
    disputes: tuple[str, ...]
    trained: Trained
    files: tuple[Path, ...] = ()

    @property
    def model(self) -> Any:  # noqa: ANN401 - a torch module or arrays
        """The researcher's module with the newest weights; arrays without torch."""
        return self.trained.model


async def parallel(
    model: object,
    data: object,
    place: Place = None,
    *,
    nodes: int,
    loss: Loss | None = None,
    options: TrainerOptions | None = None,
    **settings: Any,  # noqa: ANN401 - of `ParallelSettings`, checked there
) -> ParallelResult:
    """Train `model` by a mix of assignment, sync type, operator, rule and codec.

    Args:
        model: an `ArrayModel`, a `TorchModel`, or a torch module with `loss`.
        data: a dataset, a pair (inputs, targets), one part, or a part for each block.
        place: a connection, a backend, or None for threads of this process.
        nodes: how many compute.
        loss: ``(output, target) -> scalar``, mean over the samples, for a torch module.
        options: what has nothing to do with the mix: held-out data, folder, limits.
        settings: further ones of `ParallelSettings`.

    Raises:
        UsageError: ``STO-T040``, ``STO-T004``.
        InternalError: ``STO-T021`` after a rescue in vain, or answers that never agree.
    """
    mix = ParallelSettings(nodes, **settings)
    trainer = ParallelTrainer(place, model, data, mix, loss=loss, options=options)
    async with trainer:
        trained = await trainer.train()
        last, method = trainer.epochs[-1], trainer.run.method
    folder = trainer.options.folder
    files = reclaim(folder, mix.title) if folder else ()
    assert isinstance(method, Copied)  # noqa: S101 - `_make` made it
    return ParallelResult(*judge(last), tuple(method.disputes), trained, files)
