"""Who watches a training: trackers of others, and a page that any browser shows.

A watcher is told of each update; one with `end_epoch` also of each epoch. `Numbers` makes
one row a version of it, which goes to TensorBoard, MLflow, Weights & Biases, or a page.
"""

from __future__ import annotations

import html
import importlib
import math
import os
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol, TypeAlias

from stoilo.core.errors import UsageError
from stoilo.learn.core.picture import SIZE, find_pillow, paint_png, plot, render_svg

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


def tell_update(watchers: Sequence[Watching], update: Update, tally: Tally) -> None:
    """Tell all of an update."""
    for watcher in watchers:
        watcher(update, tally)


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
    the disk, or let any web server show its folder. Beside it lies the plot alone as SVG
    and as PNG.

    Args:
        file: the page, ``run.html``; its folder exists.
        title: of the page.
        refresh_s: how often a browser looks again, s; the PNG is as old at most, and new
            at an epoch's end.
        clock: s.

    Raises:
        UsageError: ``STO-U002``: pillow is missing.
    """

    def __init__(
        self,
        file: str | Path,
        title: str = "Training",
        refresh_s: int = 5,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        super().__init__()
        find_pillow()  # here, not in the middle of a training
        self.file, self.title, self.refresh_s = Path(file), title, refresh_s
        self.curves: dict[str, list[tuple[float, float]]] = {}
        self._newest: dict[str, float] = {}
        self._clock, self._next_s = clock, -math.inf

    def log(self, row: Mapping[str, float], version: int) -> None:
        """Add the row to the curves, and write page and plot."""
        self._newest |= row
        for name in ("loss", "held_out/loss"):
            if name in row:
                self.curves.setdefault(name, []).append((version, row[name]))
        shapes = plot(self.curves, across="versions")
        drawn = render_svg(shapes, *SIZE)
        _put(self.file.with_suffix(".svg"), drawn.encode())
        _put(self.file, self._render(drawn).encode())
        # Painting takes longer than a fast step; nobody looks more often than this.
        if "epoch/number" in row or self._clock() >= self._next_s:
            _put(self.file.with_suffix(".png"), paint_png(shapes, *SIZE))
            self._next_s = self._clock() + self.refresh_s

    def _render(self, drawn: str) -> str:
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
            f"<h1>{title}</h1>\n{drawn}\n<table>\n{rows}\n</table></html>\n"
        )


def _put(file: Path, data: bytes) -> None:
    # Never half a page: who loads it meanwhile sees the one before.
    fresh = file.with_name(f".{file.name}.new")
    fresh.write_bytes(data)
    fresh.replace(file)
