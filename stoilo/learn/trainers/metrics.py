"""What an epoch came to, kept in a file beside the run's checkpoint."""

from __future__ import annotations

import json
import math
import os
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from statistics import median
from typing import Any

import msgspec

from stoilo.core.errors import TrustError
from stoilo.learn.evaluation import Evaluation
from stoilo.learn.history import Tally
from stoilo.learn.work import Update

__all__ = ["EpochLog", "EpochMetrics", "Waits", "sum_up"]

NAME = "epochs.jsonl"


@dataclass(frozen=True, slots=True)
class EpochMetrics:
    """One epoch (one round, one accepted step, one pass: as the method counts).

    Attributes:
        epoch: from 0.
        average_loss: mean over the samples that counted, each before its update.
        samples: that counted.
        accepted_tasks: answers that counted.
        discarded_tasks: answers that came too late to count, or were not waited for.
        staleness: mean number of versions between an answer's start and its use.
        held_out: loss and accuracy of the epoch's last version; None without such data.
        seconds: that it took in this process, by the backend's clock.
        waiting: share of the tasks' time, from order to use, in which no volunteer
            computed: queue, transfer, validation, and the wait for a step's slowest
            answer. Volunteers say how long they computed; None where none says it.
        median_loss: median over the answers that counted of their mean losses, which a
            minority of false losses does not move; None where there were none.
    """

    epoch: int
    average_loss: float
    samples: int
    accepted_tasks: int
    discarded_tasks: int
    staleness: float
    held_out: Evaluation | None = None
    seconds: float = 0.0
    waiting: float | None = None
    median_loss: float | None = None

    def __getitem__(self, name: str) -> Any:  # noqa: ANN401 - of the named attribute
        """Return a metric by its name; ``avg_loss`` is the mean loss (thesis, later text)."""
        try:
            return getattr(self, "average_loss" if name == "avg_loss" else name)
        except AttributeError:
            raise KeyError(name) from None


class Waits:
    """Where the time of an epoch's tasks goes: what synchronisation costs.

    PipeDream's figure 1 (Narayanan et al. 2019) has that share for clusters.
    """

    def __init__(self, version: int, now: float, tally: Tally) -> None:
        """Begin an epoch at `now`, s, with what `tally` has counted before."""
        self._version, self._began = version, now
        self._out, self._computed = tally.out_s, tally.computed_s
        self._arrived: list[float] = []
        self._held = 0.0

    def note(self, update: Update, now: float) -> None:
        """Note an answer; it has waited until now when a later one makes the step."""
        if update.version > self._version:
            self._version = update.version
            self._held += sum(now - at for at in self._arrived)
            self._arrived.clear()
        elif update.applied:
            self._arrived.append(now)

    def seconds(self, now: float) -> float:
        """Return how long the epoch has taken, s."""
        return now - self._began

    def share(self, tally: Tally) -> float | None:
        """Return the share of the tasks' time without computing; None when unknown."""
        computed = tally.computed_s - self._computed
        whole = tally.out_s - self._out + self._held
        return 1.0 - computed / whole if whole > 0.0 < computed else None


def sum_up(
    epoch: int,
    updates: Sequence[Update],
    held_out: Evaluation | None = None,
    seconds: float = 0.0,
    waiting: float | None = None,
) -> EpochMetrics:
    """Return the metrics of an epoch's updates."""
    counted = [update for update in updates if update.applied]
    given_up = sum(len(update.given_up) for update in updates)
    samples = sum(update.samples for update in counted)
    total = sum(update.loss * update.samples for update in counted)
    stale = sum(update.staleness for update in counted)
    return EpochMetrics(
        epoch=epoch,
        average_loss=total / samples if samples else math.nan,
        samples=samples,
        accepted_tasks=len(counted),
        discarded_tasks=len(updates) - len(counted) + given_up,
        staleness=stale / len(counted) if counted else 0.0,
        held_out=held_out,
        seconds=seconds,
        waiting=waiting,
        median_loss=median([one.loss for one in counted]) if counted else None,
    )


class EpochLog:
    """The metrics of all epochs that have ended, one line of JSON each.

    Args:
        folder: of the run's checkpoint; None keeps nothing.
    """

    def __init__(self, folder: Path | None) -> None:
        self._path = folder / NAME if folder else None

    def append(self, metrics: EpochMetrics) -> None:
        """Write a line; after a crash it is there whole, or counts as not written."""
        if self._path is None:
            return
        with self._path.open("a", encoding="utf-8") as file:
            file.write(json.dumps(asdict(metrics)) + "\n")
            file.flush()
            os.fsync(file.fileno())

    def read(self, most: int | None = None) -> list[EpochMetrics]:
        """Return what was written; a last line that is cut off is taken away.

        Args:
            most: epochs; further ones, which a crash let the checkpoint not know of or
                another training left, are taken away, too. None for any number.

        Raises:
            TrustError: ``STO-T011`` when a line is damaged.
        """
        if self._path is None or not self._path.exists():
            return []
        data = self._path.read_bytes()
        lines = data.split(b"\n")[:-1][:most]
        found = [_read_line(line) for line in lines]
        kept = sum(len(line) + 1 for line in lines)
        if kept < len(data):
            os.truncate(self._path, kept)
        return found


def _read_line(line: bytes) -> EpochMetrics:
    try:
        return msgspec.convert(json.loads(line.decode()), EpochMetrics)
    except (ValueError, RecursionError) as error:  # msgspec's are of the former class
        raise TrustError(
            "STO-T011",
            f"the epochs of the checkpoint cannot be read: {error}",
            hint="give another folder, or remove the files to begin anew",
        ) from None
