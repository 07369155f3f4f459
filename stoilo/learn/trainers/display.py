"""What a training does, live in a terminal or as lines in a log: a watcher of `Run`.

with Display() as display:
    async with Run(method, model, parts, backend, watcher=display) as run:
        await run.finish()
"""

from __future__ import annotations

import asyncio
import itertools
import math
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Self

from rich.console import Console, RenderableType
from rich.live import Live
from rich.text import Text

from stoilo.learn.driver.history import Tally
from stoilo.learn.trainers.options import TrainerOptions
from stoilo.learn.trainers.timing import Estimate

if TYPE_CHECKING:
    from stoilo.learn.core.orders import Update
    from stoilo.learn.trainers.epochs import EpochMetrics


_EIGHTHS = " ▁▂▃▄▅▆▇█"
REFRESH_S = 0.25  # the screen is drawn at most so often


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


class Progress:
    """The display of one training, or none.

    Args:
        wanted: whether to show it, or where.
    """

    def __init__(self, wanted: bool | Display) -> None:
        usual = Display() if wanted else None
        self.display = wanted if isinstance(wanted, Display) else usual
        self._has_begun = False

    def watch(self, options: TrainerOptions) -> TrainerOptions:
        """Return the options with the display in them."""
        if self.display is None:
            return options
        return replace(options, watcher=self.display, on_epoch=self.display.end_epoch)

    async def begin(self, estimate: Callable[[], Estimate]) -> None:
        """Print the estimate and begin to draw; nothing the second time."""
        if self.display is None or self._has_begun:
            return
        self.display.say(str(await asyncio.to_thread(estimate)))
        self._has_begun = True
        self.display.__enter__()

    def end(self) -> None:
        """Draw a last time."""
        if self.display is not None and self._has_begun:
            self._has_begun = False
            self.display.__exit__()

    def __enter__(self) -> Self:
        """Return it."""
        return self

    def __exit__(self, *exc_info: object) -> None:
        """End it."""
        self.end()
