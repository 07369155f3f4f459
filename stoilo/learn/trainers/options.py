"""What has nothing to do with a trainer's algorithm."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias, TypedDict, TypeVar, cast

from stoilo.core.errors import UsageError
from stoilo.learn.backends import Backend
from stoilo.learn.backends.local import LocalBackend
from stoilo.learn.backends.server import ServerBackend
from stoilo.learn.core.data import Part, count_samples, read_arrays, split
from stoilo.learn.core.models import Model, TorchModel
from stoilo.learn.core.orders import Method
from stoilo.learn.driver.codecs import Raw, Transport
from stoilo.learn.driver.downlink import Downlink
from stoilo.learn.driver.transport import TransportName
from stoilo.learn.methods.base import MethodBase
from stoilo.learn.methods.privacy import Privacy, PrivateSum, make_private
from stoilo.learn.methods.rules import Clip
from stoilo.learn.methods.sandblaster import Sandblaster
from stoilo.learn.methods.schedules import Schedule
from stoilo.learn.trainers.epochs import EpochMetrics
from stoilo.learn.trainers.regions import Regions
from stoilo.learn.trainers.watching import Watching

if TYPE_CHECKING:
    from stoilo.client.connection import Connection
    from stoilo.client.options import TaskLimits
    from stoilo.core.types import Redundancy
    from stoilo.learn.trainers.progress import Conditions, Display


Loss: TypeAlias = Callable[[Any, Any], Any]  # ``(output, target) -> scalar``


def as_model(model: object, loss: Loss | None = None) -> Model:
    """Return `model` as volunteers can compute with it.

    Raises:
        UsageError: ``STO-T040`` for a torch module without a loss.
    """
    if hasattr(model, "first") and hasattr(model, "kernel"):
        return model  # type: ignore[return-value]  # a Model: it has a model's methods
    if loss is None or not hasattr(model, "named_parameters"):
        raise UsageError(
            "STO-T040",
            f"a {type(model).__name__} cannot be trained like that",
            hint="give an ArrayModel, a TorchModel, or a torch module and a loss",
        )
    return TorchModel(model, loss)  # type: ignore[arg-type]  # it has a module's methods


def as_parts(data: object, options: TrainerOptions) -> list[Part]:
    """Return the data parts: those given, or the dataset split at random."""
    if isinstance(data, list) and data and all(isinstance(p, Part) for p in data):
        return list(data)
    x, y = read_arrays(data)
    return split(x, y, min(options.tasks, count_samples(x)), seed=options.seed)


def as_held_out(data: object) -> Part | None:
    """Return held-out data as one part."""
    if data is None or isinstance(data, Part):
        return data
    return Part(*read_arrays(data))


# A connection, a backend, or None for threads of this process.
Place: TypeAlias = "Connection | Backend | None"


def open_backend(
    place: Place,
    redundancy: Redundancy | None = None,
    flavor: str | None = None,
    limits: TaskLimits | None = None,
) -> Backend:
    """Return the backend for `place`; the options hold where it is a connection."""
    if place is None:
        return LocalBackend()
    if hasattr(place, "create_task"):
        connection = cast("Connection", place)
        return ServerBackend(connection, redundancy, limits, flavor=flavor)
    return place


def set_schedule(method: Method, schedule: Schedule | None) -> None:
    """Give a method its schedule; raises ``STO-T040`` where no rate is to be changed."""
    if schedule is None:
        return
    if not isinstance(method, MethodBase) or isinstance(method, Sandblaster):
        raise UsageError(
            "STO-T040",
            f"{type(method).__name__} has no learning rate that a schedule could change",
            hint="its line search chooses the length of each step",
        )
    method.schedule = schedule


def set_privacy(
    method: Method, options: TrainerOptions, parts: int
) -> PrivateSum | None:
    """Let a method of so many parts cut and noise as asked; return what counts ε, if so.

    Raises:
        UsageError: ``STO-T040`` for a mix of which ε would be untrue.
    """
    if options.privacy is None:
        return None
    if options.by_speed:
        raise UsageError("STO-T040", "pieces of a part would each count as a part")
    if options.stop is not None and options.held_out is None:
        raise UsageError(
            "STO-T040",
            "the stop rule would look at the parts' losses, which have no noise",
            hint="give held_out data of its own, or train a number of epochs",
        )
    return make_private(method, options.privacy, parts)


@dataclass(frozen=True, slots=True)
class StopRule:
    """The test after each epoch; the most epochs are the settings' own.

    Attributes:
        target: end as soon as the watched number is so good; None for never.
        patience: end after so many epochs in a row that are no better than the best one
            before them; None for never.
        watch: "loss", the smaller the better, or another number of `Evaluation`
            (``accuracy``), the larger the better. It is read from the held-out data, of
            which no volunteer says anything; where there is none, the loss is the median
            over the epoch's answers of their mean losses, which they only claim.
        least_gain: by how much an epoch must be better to count as better.
        restore: the training ends with the version of the best epoch, not the last one;
            it is kept in the checkpoint beside the newest.
    """

    target: float | None = None
    patience: int | None = None
    watch: str = "loss"
    least_gain: float = 0.0
    restore: bool = True

    def __post_init__(self) -> None:
        """Refuse a rule that never stops, or always."""
        patient = self.patience is None or self.patience >= 1
        finite = self.target is None or math.isfinite(self.target)
        unused = self.target is None and self.patience is None
        if unused or not patient or not finite or not self.least_gain >= 0.0:
            raise UsageError(
                "STO-T040",
                f"target {self.target}, patience {self.patience} and least gain"
                f" {self.least_gain} stop no training",
                hint="a finite target or a patience ≥ 1; least_gain ≥ 0",
            )

    def is_reached(self, epochs: Sequence[EpochMetrics]) -> bool:
        """Say whether a training with these epochs ends now.

        Raises:
            UsageError: ``STO-T040`` when the last epoch has not the watched number.
        """
        if not epochs:
            return False
        last = self._goodness(epochs[-1])
        sign = -1.0 if self.watch == "loss" else 1.0
        if self.target is not None and last >= sign * self.target:
            return True
        since = len(epochs) - 1 - self.find_best(epochs)
        return self.patience is not None and since >= self.patience

    def keeps(self, epochs: Sequence[EpochMetrics]) -> bool:
        """Say whether the last epoch's version is the one to go back to."""
        return self.restore and self.find_best(epochs) == len(epochs) - 1

    def find_best(self, epochs: Sequence[EpochMetrics]) -> int:
        """Return the index of the epoch that none after it was better than; -1 for none.

        Raises:
            UsageError: ``STO-T040`` when an epoch has not the watched number.
        """
        best, found = -math.inf, -1
        for index, epoch in enumerate(epochs):
            one = self._goodness(epoch)
            if one > best + self.least_gain:
                best, found = one, index
        return found

    def _goodness(self, epoch: EpochMetrics) -> float:
        """Return the watched number, the larger the better; not finite is the worst."""
        source: object = epoch.held_out
        found = getattr(source, self.watch, None)
        if source is None and self.watch == "loss":
            median = epoch.median_loss
            found = epoch.average_loss if median is None else median
        if not isinstance(found, int | float):
            raise UsageError(
                "STO-T040",
                f"epoch {epoch.epoch} has no {self.watch} to stop by",
                hint='watch="loss", or give held_out data and a model that counts',
            )
        sign = -1.0 if self.watch == "loss" else 1.0
        return sign * found if math.isfinite(found) else -math.inf


@dataclass(frozen=True, slots=True)
class TrainerOptions:
    """What has nothing to do with the algorithm.

    Attributes:
        tasks: parts that a dataset is split into; parts that are given stay.
        in_flight: tasks out at most; when 0 as many as parts, for VC-ASGD with the latest
            weights a quarter of them. About the number of volunteers is best where each
            answer counts at once: what waits in a queue has old weights.
        tries: how often the same work may fail before the training ends.
        by_speed: what is out much longer than others were goes to another host as well,
            and rounds of gradients cut each part's work into as many pieces as slow hosts
            were slower than fast ones in the epoch before (see `stoilo.learn.driver.pace`).
        clip: bound on the influence of one answer; None for none. With `privacy` its own
            bound holds instead, as this one moves with what other parts answer.
        privacy: differential privacy of the data parts towards readers of the model (see
            `stoilo.learn.methods.privacy`); each epoch's metrics name ε. None for none.
        home_checks: share of usual answers that this process computes again before they
            count (longer ones more often, by the square of their length): a wrong one is
            given out again and its host reported; 0 for none.
        least_loss: least loss of one sample: an answer below it is refused. None: 0 for
            torch's cross entropy (BCE, too), MSE, L1 and Huber losses, else none.
        seed: of the splitting.
        folder: of checkpoint and history; None keeps nothing.
        held_out: a dataset; loss and accuracy on it end each epoch.
        stop: ends the training before its epochs are done; None for never.
        schedule: number of the update → factor of each learning rate (see
            `stoilo.learn.methods.schedules`); None for 1. It multiplies a warm-up of the
            method's own.
        progress: show the time model's estimate before the first step, then what happens.
        conditions: of the volunteers, for that estimate.
        watcher: told of each update and, if it has `end_epoch`, of each epoch; or several
            (see `stoilo.learn.trainers.watching`).
        console: whether the server's console is told how the training goes.
        on_epoch: told of each epoch.
        redundancy: copies and quorum of a task at a server. One copy when None, where the
            thesis (§9.2) computed each twice: half the work, and a wrong answer of the
            right form counts, bounded by `clip` and the rule of a step.
            ``CreateOptions(min_quorum=2)`` is the thesis's. Spot checks are the server's
            to make: 2 % of results unless `spot_check_percent` says otherwise, once its
            operator trusts an account; `home_checks` are made here.
        flavor: dependency set at a server.
        limits: of a task at a server.
        transport: how answers' arrays travel: "raw", "compressed" (the same to the last
            bit), "bfloat16", "float16" (half of float32, rounded), "int8" (a quarter,
            unbiased), "ternary" (a twentieth, unbiased and noisy), or a codec.
        downlink: how versions travel to volunteers: "raw", "compressed", "bfloat16",
            "float16", or `Delta`, a whole one now and then and between them what changed.
    """

    tasks: int = 8
    in_flight: int = 0
    tries: int = 4
    by_speed: bool = False
    clip: Clip | None = field(default_factory=Clip)
    privacy: Privacy | None = None
    home_checks: float = 0.02
    least_loss: float | None = None
    seed: int = 0
    folder: Path | None = None
    held_out: object = None
    stop: StopRule | None = None
    schedule: Schedule | None = None
    progress: bool | Display = False
    conditions: Conditions | None = None
    watcher: Watching | Sequence[Watching] | None = None
    console: bool = True
    on_epoch: Callable[[EpochMetrics], None] | None = None
    redundancy: Redundancy | None = None
    flavor: str | None = None
    limits: TaskLimits | None = None
    transport: Transport | TransportName = "raw"
    downlink: Downlink = "raw"

    def describe_trust(self) -> str:
        """Return, in a line, how many copies are believed and what is computed again."""
        copies = "One copy" if self.redundancy is None else "A quorum"
        share = f"{self.home_checks:.3g} of usual answers, longer ones more often, are"
        return (
            f"{copies} of each task is believed; {share} computed again here"
            " before they count. A server checks on top if its operator trusts an account."
        )


Chosen = TypeVar("Chosen", bound=TrainerOptions)


def as_options(options: Chosen | None, place: Place) -> Chosen | TrainerOptions:
    """Return the options as they hold at a place: in regions, answers are checked there.

    Raises:
        UsageError: ``STO-T040`` for what needs single answers here.
    """
    chosen = options or TrainerOptions()
    if not isinstance(place, Regions):
        return chosen
    if chosen.privacy is not None:
        raise UsageError(
            "STO-T040",
            "a training in regions is not private: sums travel between nodes without noise",
        )
    if chosen.transport not in ("raw", Raw()) or chosen.downlink != "raw":
        raise UsageError("STO-T040", "how answers travel is each Region's to say")
    return replace(chosen, clip=None, home_checks=0.0)


class Common(TypedDict, total=False):
    """What every trainer takes by name, beside what its method needs."""

    # ``(output, target) -> scalar``, mean over the samples, of a torch module
    loss: Loss | None
    options: TrainerOptions | None  # what has nothing to do with the algorithm
