"""What a run did, one line of JSON for each update, and sums over epochs."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path

from stoilo.learn.work import Update

__all__ = ["EpochRow", "History", "Tally"]


@dataclass(slots=True)
class Tally:
    """What happened besides updates, since the run began.

    Attributes:
        sent_bytes: values stored for volunteers, each counted once.
        received_bytes: arrays in accepted answers.
        refused: answers that acceptance refused.
        failed: tasks that ended without an answer.
        shortened: answers whose influence was cut.
        stragglers: orders that were out much longer than usual at the last answer.
        out_s: from order to answer, summed over the answers, s.
        computed_s: of that, what volunteers say they computed, s; 0 where none says it.
    """

    sent_bytes: int = 0
    received_bytes: int = 0
    refused: int = 0
    failed: int = 0
    shortened: int = 0
    stragglers: int = 0
    out_s: float = 0.0
    computed_s: float = 0.0


@dataclass(frozen=True, slots=True)
class EpochRow:
    """One epoch: mean loss of what was applied, samples, mean staleness."""

    epoch: int
    loss: float
    samples: int
    staleness: float
    updates: int


class History:
    """All updates of a run, in memory and, where a file is given, as JSON lines."""

    def __init__(self, path: Path | None = None) -> None:
        self.updates: list[Update] = []
        self.times: list[float] = []
        self._path = path

    def note(self, update: Update, at: float, tally: Tally) -> None:
        """Append an update; `at` is the backend's time, s."""
        self.updates.append(update)
        self.times.append(at)
        if self._path is not None:
            line = {"at": round(at, 6), **asdict(update), **asdict(tally)}
            with self._path.open("a", encoding="utf-8") as file:
                file.write(json.dumps(line) + "\n")

    def epochs(self) -> Iterator[EpochRow]:
        """Yield a row for each epoch that has an applied update."""
        by_epoch: dict[int, list[Update]] = {}
        for update in self.updates:
            if update.applied:
                by_epoch.setdefault(update.epoch, []).append(update)
        for epoch, found in sorted(by_epoch.items()):
            samples = sum(u.samples for u in found)
            loss = sum(u.loss * u.samples for u in found) / samples
            stale = sum(u.staleness for u in found) / len(found)
            yield EpochRow(epoch, loss, samples, stale, len(found))
