"""What a run did, one line of JSON for each update, and sums over epochs.

In memory only the newest updates and epochs are kept; the file has all of them, each once.
"""

from __future__ import annotations

import json
import math
from collections import deque
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import Any

from stoilo.core.errors import UsageError
from stoilo.learn.core.orders import Plain, Update
from stoilo.learn.driver.array_files import damaged
from stoilo.learn.driver.checkpoint import Lines


KEPT_UPDATES = 100_000
KEPT_EPOCHS = 10_000


@dataclass(slots=True)
class Tally:
    """What happened besides updates, since the run began (in all its processes).

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

    def save(self) -> dict[str, Plain]:
        """Return it as plain data."""
        return dict(asdict(self))

    def load(self, plain: Mapping[str, Plain]) -> None:
        """Take up what `save` gave; what is not there stays."""
        for field in fields(self):
            value = plain.get(field.name)
            if isinstance(value, int | float):
                setattr(self, field.name, type(getattr(self, field.name))(value))


@dataclass(frozen=True, slots=True)
class EpochRow:
    """One epoch: mean loss of what was applied, samples, mean staleness."""

    epoch: int
    loss: float
    samples: int
    staleness: float
    updates: int


@dataclass(slots=True)
class _Sums:
    """What an epoch's applied updates add up to."""

    loss: float = 0.0
    samples: int = 0
    staleness: int = 0
    updates: int = 0


class History:
    """The updates of a run, in memory and, where a file is given, as JSON lines."""

    def __init__(self, path: Path | None = None) -> None:
        self._path = path
        self._updates: deque[Update] = deque(maxlen=KEPT_UPDATES)
        self._times: deque[float] = deque(maxlen=KEPT_UPDATES)
        self._epochs: dict[int, _Sums] = {}
        self._count = 0
        self._written, self._unwritten = 0, b""

    @property
    def updates(self) -> list[Update]:
        """The newest `KEPT_UPDATES` updates, those of earlier processes included."""
        return list(self._updates)

    @property
    def times(self) -> list[float]:
        """When they were, by the backend's clock of their process, s."""
        return list(self._times)

    def __len__(self) -> int:
        """Return how many updates there have been in all."""
        return self._count

    def note(self, update: Update, at: float, tally: Tally) -> None:
        """Append an update; `at` is the backend's time, s."""
        if self._path is not None:
            line = {"update": self._count, "at": round(at, 6), **_row(update)}
            text = json.dumps(line | tally.save(), allow_nan=False)
            self._unwritten += text.encode() + b"\n"
        self._remember(update, at)

    def _remember(self, update: Update, at: float) -> None:
        self._count += 1
        self._updates.append(update)
        self._times.append(at)
        if not update.applied:
            return
        if update.epoch not in self._epochs and len(self._epochs) == KEPT_EPOCHS:
            del self._epochs[min(self._epochs)]
        sums = self._epochs.setdefault(update.epoch, _Sums())
        sums.loss += update.loss * update.samples
        sums.samples += update.samples
        sums.staleness += update.staleness
        sums.updates += 1

    def epochs(self) -> Iterator[EpochRow]:
        """Yield a row for each of the newest epochs that has an applied update."""
        for epoch, sums in sorted(self._epochs.items()):
            mean = sums.loss / sums.samples if sums.samples else math.nan
            stale = sums.staleness / sums.updates
            yield EpochRow(epoch, mean, sums.samples, stale, sums.updates)

    def unwritten(self) -> Lines | None:
        """Return the lines that are not in the file; None when all are, or there is none."""
        if self._path is None or not self._unwritten:
            return None
        return Lines(self._path, self._written, self._unwritten)

    def wrote(self, lines: Lines) -> None:
        """Note that lines are in the file."""
        done = lines.start + len(lines.data) - self._written
        self._written, self._unwritten = self._written + done, self._unwritten[done:]

    def save(self) -> dict[str, Plain]:
        """Return how long the file is once `unwritten` lies in it."""
        return {"bytes": self._written + len(self._unwritten)}

    def load(self, plain: Mapping[str, Plain]) -> None:
        """Read the file as far as a checkpoint counts on it.

        Raises:
            TrustError: ``STO-T011`` when it is shorter, or was changed.
            UsageError: ``STO-T012`` when the checkpoint does not say how long it is.
        """
        size = plain.get("bytes")
        if type(size) is not int or self._path is None:
            raise UsageError("STO-T012", "the checkpoint says nothing of its history")
        self._updates.clear()
        self._times.clear()
        self._epochs.clear()
        self._count = 0
        if size:
            self._read(self._path, size)
        self._written, self._unwritten = size, b""

    def _read(self, path: Path, size: int) -> None:
        try:
            with path.open("rb") as file:
                while file.tell() < size:
                    row = json.loads(file.readline(size - file.tell()))
                    self._remember(_update(row), float(row["at"]))
        except (OSError, ValueError, KeyError, TypeError) as error:
            raise damaged(f"{path.name}: {type(error).__name__}") from None


def _row(update: Update) -> dict[str, Plain]:
    row: dict[str, Plain] = {name: getattr(update, name) for name in _FIELDS}
    if not math.isfinite(update.loss):
        row["loss"] = None  # JSON has no infinity
    return row


def _update(row: Mapping[str, Any]) -> Update:
    wanted = {name: row[name] for name in _FIELDS}
    if wanted["loss"] is None:
        wanted["loss"] = math.nan
    return Update(**wanted)


_FIELDS = (
    "key",
    "version",
    "applied",
    "loss",
    "samples",
    "staleness",
    "epoch",
    "epoch_ended",
)
