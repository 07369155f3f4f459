"""Who watches a training: trackers of others, and a page that any browser shows.

A watcher is told of each update; one with `end_epoch` also of each epoch. `Numbers` makes
one row a version of it, which goes to TensorBoard, MLflow, Weights & Biases, or a page.
"""

from __future__ import annotations

import html
import importlib
import math
import os
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol, TypeAlias

from stoilo.core.errors import UsageError

if TYPE_CHECKING:
    from stoilo.learn.core.orders import Update
    from stoilo.learn.driver.saving import Tally
    from stoilo.learn.trainers.epochs import EpochMetrics


class Watcher(Protocol):
    """Whoever looks on; what it raises ends the step that it was told of."""

    def __call__(self, update: Update, tally: Tally) -> None:
        """Note an update, once it is saved."""

    def end_epoch(self, metrics: EpochMetrics) -> None:
        """Note what an epoch came to."""


# A `Watcher`, or a function of update and tally alone.
Watching: TypeAlias = "Watcher | Callable[[Update, Tally], None]"


def as_watchers(given: Watching | Iterable[Watching] | None) -> list[Watching]:
    """Return one watcher, several or none as a list."""
    if given is None:
        return []
    return [given] if callable(given) else list(given)


def tell_epoch(
    watchers: Sequence[Watching],
    metrics: EpochMetrics,
    then: Callable[[EpochMetrics], None] | None,
) -> None:
    """Tell those of an epoch's end who want to know, and `then` the last."""
    for end in (*(getattr(one, "end_epoch", None) for one in watchers), then):
        if end is not None:
            end(metrics)


class Numbers(ABC):
    """A watcher that gives out a row of numbers for each new version, and each epoch.

    The row's place is the version: it grows by one with each update of the model, and a
    training that goes on after a kill goes on in the same curve.
    """

    def __init__(self) -> None:
        self._version = 0
        self._since: list[Update] = []

    def __call__(self, update: Update, tally: Tally) -> None:
        """Note an update; the version's row is the mean of the answers that made it."""
        self._since.append(update)
        if update.version <= self._version:
            return
        self._version, since = update.version, self._since
        counted = [one for one in since if one.applied]
        samples = sum(one.samples for one in counted)
        total = sum(one.loss * one.samples for one in counted)
        row = {
            "loss": total / samples if samples else math.nan,
            "samples": samples,
            "answers": len(counted),
            "late": len(since) - len(counted),
            "staleness": max((one.staleness for one in counted), default=0),
        }
        self._since = []
        self.log({**row, **asdict(tally)}, self._version)

    def end_epoch(self, metrics: EpochMetrics) -> None:
        """Give out the epoch's row, held-out numbers and all, at its last version."""
        self.log(read_epoch(metrics), self._version)

    @abstractmethod
    def log(self, row: Mapping[str, float], version: int) -> None:
        """Take a row: name → number."""


def read_epoch(metrics: EpochMetrics) -> dict[str, float]:
    """Return an epoch's numbers, those of the held-out data under ``held_out/``."""
    whole = asdict(metrics)
    held_out = whole.pop("held_out") or {}
    scores = held_out.pop("scores", None) or {}
    found = {f"epoch/{name}": value for name, value in whole.items()}
    found |= {f"held_out/{name}": value for name, value in (held_out | scores).items()}
    found["epoch/number"] = found.pop("epoch/epoch")
    return {name: float(value) for name, value in found.items() if value is not None}


class TensorBoard(Numbers):
    """Scalars for TensorBoard.

    Args:
        writer: of torch or tensorboardX (``add_scalar``, ``flush``), or a folder.

    Raises:
        UsageError: ``STO-U002``.
    """

    def __init__(self, writer: Any) -> None:  # noqa: ANN401 - another package's
        super().__init__()
        if isinstance(writer, str | os.PathLike):
            torch = find_package("torch.utils.tensorboard", "tensorboard")
            writer = torch.SummaryWriter(os.fspath(writer))
        self.writer = writer

    def log(self, row: Mapping[str, float], version: int) -> None:
        """Add a scalar for each number."""
        for name, value in row.items():
            self.writer.add_scalar(name, value, version)

    def end_epoch(self, metrics: EpochMetrics) -> None:
        """Add the epoch's, and have all of them written."""
        super().end_epoch(metrics)
        self.writer.flush()


class MLflow(Numbers):
    """Metrics of MLflow's active run.

    Args:
        mlflow: the package, or what has its ``log_metrics``; imported when None.

    Raises:
        UsageError: ``STO-U002``.
    """

    def __init__(self, mlflow: Any = None) -> None:  # noqa: ANN401 - another package's
        super().__init__()
        self.mlflow = mlflow or find_package("mlflow", "mlflow")

    def log(self, row: Mapping[str, float], version: int) -> None:
        """Log the row at its version."""
        self.mlflow.log_metrics(dict(row), step=version)


class WandB(Numbers):
    """Rows of a run of Weights & Biases.

    Args:
        run: what ``wandb.init`` returned; begun with the environment's settings when None.

    Raises:
        UsageError: ``STO-U002``.
    """

    def __init__(self, run: Any = None) -> None:  # noqa: ANN401 - another package's
        super().__init__()
        self.run = run or find_package("wandb", "wandb").init()

    def log(self, row: Mapping[str, float], version: int) -> None:
        """Log the row at its version; rows of one version become one there."""
        self.run.log(dict(row), step=version)


def find_package(module: str, extra: str) -> Any:  # noqa: ANN401 - a module
    """Return a tracker's module; raises ``STO-U002`` naming the extra that brings it."""
    try:
        return importlib.import_module(module)
    except ImportError as error:
        raise UsageError(
            "STO-U002",
            f"watching with {extra} needs the {extra} extra ({error.name} is missing)",
            hint=f"pip install 'stoilo[{extra}]'",
        ) from None


class Page(Numbers):
    """A page that shows the training in a browser, and loads itself again.

    It is one file, written anew after each version and put in place at once: open it from
    the disk, or let any web server show its folder. Beside it lies the plot alone as SVG.

    Args:
        file: the page, ``run.html``; its folder exists.
        title: of the page.
        refresh_s: how often a browser looks again, s.
    """

    def __init__(
        self, file: str | Path, title: str = "Training", refresh_s: int = 5
    ) -> None:
        super().__init__()
        self.file, self.title, self.refresh_s = Path(file), title, refresh_s
        self.curves: dict[str, list[tuple[float, float]]] = {}
        self._newest: dict[str, float] = {}

    def log(self, row: Mapping[str, float], version: int) -> None:
        """Add the row to the curves, and write page and plot."""
        self._newest |= row
        for name in ("loss", "held_out/loss"):
            if name in row:
                self.curves.setdefault(name, []).append((version, row[name]))
        plot = draw(self.curves, across="versions")
        _put(self.file.with_suffix(".svg"), plot)
        _put(self.file, self._render(plot))

    def _render(self, plot: str) -> str:
        title = html.escape(self.title)
        rows = "\n".join(
            f"<tr><th>{html.escape(name)}</th><td>{value:.6g}</td></tr>"
            for name, value in sorted(self._newest.items())
        )
        return (
            '<!doctype html><html lang="en"><meta charset="utf-8">'
            f'<meta http-equiv="refresh" content="{self.refresh_s}">'
            f"<title>{title}</title><style>body{{font-family:sans-serif;max-width:60em;"
            "margin:auto}th{text-align:left;padding-right:2em}</style>"
            f"<h1>{title}</h1>\n{plot}\n<table>\n{rows}\n</table></html>\n"
        )


def _put(file: Path, text: str) -> None:
    # Never half a page: who loads it meanwhile sees the one before.
    fresh = file.with_name(f".{file.name}.new")
    fresh.write_text(text, encoding="utf-8")
    fresh.replace(file)


_COLOURS = ("#06c", "#c60", "#283", "#a2a", "#555")
_WIDTH, _HEIGHT, _LEFT, _TOP = 500, 300, 60, 20


def draw(
    curves: Mapping[str, Sequence[tuple[float, float]]],
    across: str = "",
    marks: Mapping[str, tuple[float, float]] | None = None,
) -> str:
    """Return an SVG of curves, name → points; of points that are not finite, none.

    Args:
        curves: in the order of their colours.
        across: what the first number of a point counts.
        marks: single points with their names, shown as crosses.
    """
    finite = {
        name: [(x, y) for x, y in points if math.isfinite(x) and math.isfinite(y)]
        for name, points in curves.items()
    }
    known = [p for points in (*finite.values(), (marks or {}).values()) for p in points]
    place = _Plane(known or [(0.0, 0.0)])
    return "\n".join(
        [
            '<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 500 330" font-size="12">',
            f'<path d="M{_LEFT} {_TOP}V{_HEIGHT}H{_WIDTH}" fill="none" stroke="#888"/>',
            *place.label(across),
            *(
                _line(place, number, name, points)
                for number, (name, points) in enumerate(finite.items())
            ),
            *(_cross(place(*point), name) for name, point in (marks or {}).items()),
            "</svg>\n",
        ]
    )


class _Plane:
    """Where a point lies in the picture."""

    def __init__(self, points: Iterable[tuple[float, float]]) -> None:
        xs, ys = zip(*points, strict=True)
        self.left, self.right = min(0.0, *xs), max(xs)
        self.low, self.high = min(0.0, *ys), max(ys)

    def __call__(self, x: float, y: float) -> tuple[float, float]:
        across = (x - self.left) / ((self.right - self.left) or 1.0)
        up = (y - self.low) / ((self.high - self.low) or 1.0)
        return _LEFT + (_WIDTH - _LEFT) * across, _HEIGHT - (_HEIGHT - _TOP) * up

    def label(self, across: str) -> list[str]:
        """Return the numbers at the axes."""
        steps = [
            self.low + (self.high - self.low) * quarter / 4 for quarter in range(5)
        ]
        found = [
            f'<text x="4" y="{self(self.left, y)[1] + 4:.0f}">{y:.4g}</text>'
            for y in steps
        ]
        text = html.escape(f"{self.right:.4g} {across}")
        return [*found, f'<text x="{_WIDTH}" y="320" text-anchor="end">{text}</text>']


def _line(
    place: _Plane, number: int, name: str, points: Sequence[tuple[float, float]]
) -> str:
    colour = _COLOURS[number % len(_COLOURS)]
    corners = " ".join("{:.1f},{:.1f}".format(*place(*point)) for point in points)
    text = f'<text x="{_LEFT + 10 + 110 * number}" y="14" fill="{colour}">'
    return (
        f'<polyline points="{corners}" fill="none" stroke="{colour}" stroke-width="2"/>'
        f"{text}{html.escape(name)}</text>"
    )


def _cross(at: tuple[float, float], name: str) -> str:
    x, y = at
    return (
        f'<path d="M{x - 5:.1f} {y:.1f}h10m-5 -5v10" stroke="#c00"/><text x="{x - 8:.1f}"'
        f' y="{y - 8:.1f}" text-anchor="end" fill="#c00">{html.escape(name)}</text>'
    )
