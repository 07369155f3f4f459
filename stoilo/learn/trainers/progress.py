"""How long a step of a training will take, before a volunteer is asked: arithmetic only.

    task ≈ poll + download + compute + upload + validation

A step waits for its slowest task; with more tasks than volunteers it takes several rounds.
"""

from __future__ import annotations

import itertools
import math
import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Self

from rich.console import Console, RenderableType
from rich.live import Live
from rich.text import Text

from stoilo.core.errors import UsageError
from stoilo.learn.core.data import Part
from stoilo.learn.core.models import Model
from stoilo.learn.core.orders import Order
from stoilo.learn.driver.codecs import Transport
from stoilo.learn.driver.downlink import Downlink, as_downlink
from stoilo.learn.driver.probing import measure_seconds
from stoilo.learn.driver.saving import Tally
from stoilo.learn.driver.transport import TransportName, as_transport

if TYPE_CHECKING:
    from stoilo.learn.core.orders import Update
    from stoilo.learn.trainers.epochs import EpochMetrics


# A task should compute at least so many times as long as everything else takes.
LEAST_SHARE = 3.0
# A task should take at most this share of its deadline: hosts differ in speed.
MOST_OF_DEADLINE = 0.5


@dataclass(frozen=True, slots=True)
class Conditions:
    """What volunteers and the project are like; the defaults are a home connection.

    Attributes:
        volunteers: computers that work at once.
        poll_s: from asking for work to having it, on average, s.
        download: bytes/s.
        upload: bytes/s.
        validate_s: from the report to the answer's use, s.
        slowdown: of a volunteer's computer against this one.
        deadline_s: a task that takes longer is given to somebody else, s.
    """

    volunteers: int = 3
    poll_s: float = 15.0
    download: float = 5e6
    upload: float = 1e6
    validate_s: float = 1.0
    slowdown: float = 2.0
    deadline_s: float = 300.0

    def __post_init__(self) -> None:
        """Refuse conditions under which nothing would come back."""
        above = ("volunteers", "download", "upload", "slowdown", "deadline_s")
        wrong = [name for name in above if not getattr(self, name) > 0]
        least = ("poll_s", "validate_s")
        wrong += [name for name in least if not getattr(self, name) >= 0]
        if wrong:
            raise UsageError("STO-T040", f"{wrong[0]} is too small for an estimate")


@dataclass(frozen=True, slots=True)
class Estimate:
    """One step's time, s, each part for one task.

    Attributes:
        poll_s: until a volunteer asks.
        download_s: of model version and data.
        compute_s: on a volunteer's computer.
        upload_s: of the answer.
        validate_s: until it counts.
        tasks: of a step.
        rounds: how often each volunteer has a turn in a step.
        deadline_s: of a task.
    """

    poll_s: float
    download_s: float
    compute_s: float
    upload_s: float
    validate_s: float
    tasks: int
    rounds: int
    deadline_s: float

    @classmethod
    def of(
        cls,
        conditions: Conditions,
        tasks: int,  # of a step, all alike
        *,
        # Model version and data part; a host that has one of them already loads less
        download_bytes: int,
        upload_bytes: int,  # arrays of the answer
        compute_s: float,  # on this computer
    ) -> Self:
        """Return the time of a step."""
        return cls(
            conditions.poll_s,
            download_bytes / conditions.download,
            compute_s * conditions.slowdown,
            upload_bytes / conditions.upload,
            conditions.validate_s,
            tasks,
            max(1, math.ceil(tasks / conditions.volunteers)),
            conditions.deadline_s,
        )

    @property
    def rest_s(self) -> float:
        """All of a task's time that is not computing."""
        return self.poll_s + self.download_s + self.upload_s + self.validate_s

    @property
    def task_s(self) -> float:
        """One task, s."""
        return self.rest_s + self.compute_s

    @property
    def step_s(self) -> float:
        """One step, s: all its tasks."""
        return self.rounds * self.task_s

    def warnings(self) -> tuple[str, ...]:
        """Return what is unwise about these tasks."""
        found = []
        if self.compute_s < LEAST_SHARE * self.rest_s:
            found.append(
                f"tasks are too small: {self.compute_s:.1f} s of computing for"
                f" {self.rest_s:.1f} s of everything else; give each more samples or steps"
            )
        limit = MOST_OF_DEADLINE * self.deadline_s
        if self.task_s > limit:
            found.append(
                f"tasks are too large: {self.task_s:.0f} s is over half of the deadline of"
                f" {self.deadline_s:.0f} s; give each fewer samples, or a later deadline"
            )
        return tuple(found)

    def __str__(self) -> str:
        """Return it as lines for a person."""
        turns = "1 round" if self.rounds == 1 else f"{self.rounds} rounds"
        line = (
            f"step ≈ {self.step_s:.1f} s ({self.tasks} tasks, {turns}):"
            f" poll {self.poll_s:.1f} + download {self.download_s:.1f} + compute"
            f" {self.compute_s:.1f} + upload {self.upload_s:.1f} + validation"
            f" {self.validate_s:.1f} s a task"
        )
        return "\n".join([line, *(f"warning: {text}" for text in self.warnings())])


_EIGHTHS = " ▁▂▃▄▅▆▇█"
REFRESH_S = 0.25  # the screen is drawn at most so often


def estimate_step(
    form: Model,
    parts: Sequence[Part],
    orders: Sequence[Order],  # of the step, one at least
    transport: Transport | TransportName,
    downlink: Downlink,
    given: Conditions,
) -> Estimate:
    """Return how long a step will take; a few samples are computed here to know."""
    largest = max(orders, key=lambda order: order.samples)
    part, base = parts[largest.part], largest.snapshot
    kinds = base.parameters, base.buffers
    model, buffers = (sum(a.nbytes for a in one.values()) for one in kinds)
    down = as_downlink(downlink)
    sent = round(model * (down.share if down else 1.0)) + buffers + part.nbytes
    return Estimate.of(
        given,
        len(orders),
        download_bytes=sent,
        upload_bytes=round(model * as_transport(transport).share) + buffers,
        compute_s=largest.samples * measure_seconds(form, largest, part),
    )


def sparkline(values: Sequence[float], width: int = 60) -> str:
    """Return a curve as one line of text; with more values than columns, their means."""
    count = max(1, min(len(values), width))
    edges = [column * len(values) // count for column in range(count + 1)]
    groups = [values[start:end] for start, end in itertools.pairwise(edges)]
    means = [_mean([v for v in group if math.isfinite(v)]) for group in groups if group]
    finite = [mean for mean in means if math.isfinite(mean)]
    low = min(finite, default=0.0)
    span = max(finite, default=0.0) - low
    found = ""
    for mean in means:
        share = (mean - low) / span if 0.0 < span < math.inf else 0.0
        found += _EIGHTHS[1 + round(7 * share)] if math.isfinite(mean) else " "
    return found


def _mean(values: Sequence[float]) -> float:
    # Divided before they are added: a diverging loss is near the largest number.
    return sum(value / len(values) for value in values) if values else math.nan


class Display:
    """Epoch, loss, accuracy, bytes, refusals, stragglers, waiting, and the loss's curve.

    In a terminal it is drawn over and over; elsewhere one line an epoch is printed, and
    nothing is drawn until the end.

    Args:
        console: where to; standard output when None.
    """

    def __init__(self, console: Console | None = None) -> None:
        self.console = console or Console()
        self.losses: list[float] = []
        self.late = 0
        self.epoch = 0
        self.tally = Tally()
        self.metrics: EpochMetrics | None = None
        self._live: Live | None = None
        self._drawn_at = 0.0

    def __call__(self, update: Update, tally: Tally) -> None:
        """Note an update, as a watcher."""
        self.epoch, self.tally = update.epoch, tally
        if update.applied:
            self.losses.append(update.loss)
        else:
            self.late += 1
        self._draw()

    def end_epoch(self, metrics: EpochMetrics) -> None:
        """Note what an epoch came to."""
        self.metrics = metrics
        if not self.console.is_terminal:
            self.console.print(describe_epoch(metrics), highlight=False)
        self._draw(now=True)

    def say(self, text: str) -> None:
        """Print something above the display."""
        self.console.print(text, highlight=False, markup=False)

    def render(self) -> RenderableType:
        """Return the whole display as it is now."""
        cells = [f"{name} {value}" for name, value in self.cells().items()]
        first, second = "  ".join(cells[:4]), "  ".join(cells[4:])
        curve = sparkline(self.losses, width=max(10, self.console.width - 2))
        return Text(f"{first}\n{second}\n{curve}", no_wrap=True)

    def cells(self) -> dict[str, str]:
        """Return what is shown, by name: the first four above the others."""
        held_out = self.metrics.held_out if self.metrics else None
        right = held_out.accuracy if held_out else None
        waiting = self.metrics.waiting if self.metrics else None
        return {
            "epoch": str(self.epoch),
            "loss": f"{self.losses[-1]:.4g}" if self.losses else "-",
            "held out": f"{held_out.loss:.4g}" if held_out else "-",
            "accuracy": f"{right:.1%}" if right is not None else "-",
            "sent": count_bytes(self.tally.sent_bytes),
            "received": count_bytes(self.tally.received_bytes),
            "refused": str(self.tally.refused),
            "failed": str(self.tally.failed),
            "shortened": str(self.tally.shortened),
            "late": str(self.late),
            "stragglers": str(self.tally.stragglers),
            "waiting": f"{waiting:.0%}" if waiting is not None else "-",
        }

    def _draw(self, *, now: bool = False) -> None:
        if self._live is None:
            return
        at = time.monotonic()
        if now or at - self._drawn_at >= REFRESH_S:
            self._drawn_at = at
            self._live.update(self.render(), refresh=True)

    def __enter__(self) -> Self:
        """Begin to draw, in a terminal."""
        if self.console.is_terminal:
            self._live = Live(self.render(), console=self.console, auto_refresh=False)
            self._live.start()
        return self

    def __exit__(self, *exc_info: object) -> None:
        """Draw a last time."""
        if self._live is None:
            self.console.print(self.render())
            return
        self._draw(now=True)
        self._live.stop()
        self._live = None


def describe_epoch(metrics: EpochMetrics) -> str:
    """Return an epoch as one line."""
    line = f"epoch {metrics.epoch}: loss {metrics.average_loss:.4g}"
    line += "" if metrics.epsilon is None else f", ε {metrics.epsilon:.3g}"
    held_out = metrics.held_out
    if held_out is not None:
        line += f", held out {held_out.loss:.4g}"
    if held_out is not None and held_out.accuracy is not None:
        line += f", accuracy {held_out.accuracy:.1%}"
    line += f", {metrics.accepted_tasks} tasks in {metrics.seconds:.1f} s"
    return line if metrics.waiting is None else f"{line}, waiting {metrics.waiting:.0%}"


def count_bytes(size: int) -> str:
    """Return a number of bytes for people: 1.5 MB."""
    amount, unit = float(size), "B"
    for larger in ("kB", "MB", "GB", "TB"):
        if amount < 1000.0:  # noqa: PLR2004 - decimal units
            break
        amount, unit = amount / 1000.0, larger
    return f"{amount:.0f} {unit}" if unit == "B" else f"{amount:.1f} {unit}"
