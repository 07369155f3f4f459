"""What has nothing to do with a trainer's algorithm."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, TypedDict

from stoilo.learn.history import Tally
from stoilo.learn.robust import Clip
from stoilo.learn.trainers.given import Loss
from stoilo.learn.trainers.metrics import EpochMetrics
from stoilo.learn.trainers.stopping import StopRule
from stoilo.learn.transport import Transport, TransportName
from stoilo.learn.work import Update

if TYPE_CHECKING:
    from stoilo.client.options import TaskLimits
    from stoilo.core.types import Redundancy

__all__ = ["Common", "TrainerOptions"]


@dataclass(frozen=True, slots=True)
class TrainerOptions:
    """What has nothing to do with the algorithm.

    Attributes:
        tasks: parts that a dataset is split into; parts that are given stay.
        in_flight: tasks out at most; when 0 as many as parts, for VC-ASGD with the latest
            weights a quarter of them. About the number of volunteers is best where each
            answer counts at once: what waits in a queue has old weights.
        tries: how often the same work may fail before the training ends.
        clip: bound on the influence of one answer; None for none.
        least_loss: least loss of one sample: an answer below it is refused. None: 0 for
            torch's cross entropy (BCE, too), MSE, L1 and Huber losses, else none.
        seed: of the splitting.
        folder: of checkpoint and history; None keeps nothing.
        held_out: a dataset; loss and accuracy on it end each epoch.
        stop: ends the training before its epochs are done; None for never.
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
    least_loss: float | None = None
    seed: int = 0
    folder: Path | None = None
    held_out: object = None
    stop: StopRule | None = None
    watcher: Callable[[Update, Tally], None] | None = None
    on_epoch: Callable[[EpochMetrics], None] | None = None
    redundancy: Redundancy | None = None
    flavor: str | None = None
    limits: TaskLimits | None = None
    transport: Transport | TransportName = "raw"


class Common(TypedDict, total=False):
    """What every trainer takes by name, beside what its method needs.

    Attributes:
        loss: ``(output, target) -> scalar``, mean over the samples, of a torch module.
        options: what has nothing to do with the algorithm.
    """

    loss: Loss | None
    options: TrainerOptions | None
