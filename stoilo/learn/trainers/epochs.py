"""An epoch under way, what epochs came to, and what of them is on disk."""

from __future__ import annotations

import asyncio
import math
from collections.abc import AsyncIterator, Callable, Generator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from statistics import median
from typing import Any, Protocol

from stoilo.core.errors import UsageError
from stoilo.learn.core.checkpoint import Checkpoint
from stoilo.learn.core.models import Model, TorchModel
from stoilo.learn.core.orders import Snapshot, Update
from stoilo.learn.core.states import (
    Keeper,
    State,
    Stateful,
    join_states,
    parse,
    render,
    select,
)
from stoilo.learn.driver.saving import History, Tally, describe
from stoilo.learn.trainers.evaluation import Evaluation


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
        epsilon: of all steps so far at the settings' δ; None without `privacy`, whose noise
            does not cover the losses above.
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
    epsilon: float | None = None


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
    epsilon: float | None = None,
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
        epsilon=epsilon,
    )


class Keeps(Protocol):
    """Whoever says which epoch's version is worth keeping."""

    def keeps(self, epochs: Sequence[EpochMetrics]) -> bool:
        """Say whether to keep the last one's, in place of the one before."""


class Epochs(Stateful):
    """What the epochs that have ended came to; part of a run's checkpoint."""

    kept = Stateful.kept | {"ended": list[EpochMetrics], "best": list[Snapshot]}

    def __init__(self) -> None:
        self.ended: list[EpochMetrics] = []
        self.best: list[Snapshot] = []  # the best epoch's version, where it is kept

    def note(
        self, metrics: EpochMetrics, snapshot: Snapshot, rule: Keeps | None
    ) -> None:
        """Note an epoch, and its version if the rule wants it."""
        self.ended.append(metrics)
        if rule is not None and rule.keeps(self.ended):
            self.best = [snapshot]

    def load(self, state: State) -> None:
        """Go on from a saved state; one of before there were best versions has none."""
        super().load(replace(state, plain={"best": [], **state.plain}))


class Epoch:
    """One epoch under way: await it for its metrics, or follow its answers.

    Nothing happens before one of the two is begun.
    """

    def __init__(
        self,
        updates: AsyncIterator[TrainingUpdate],
        last: Callable[[], EpochMetrics],
    ) -> None:
        """Put it together: its answers, and what returns its metrics afterwards."""
        self._updates, self._last = updates, last

    def __aiter__(self) -> AsyncIterator[TrainingUpdate]:
        """Yield what each answer did, to the epoch's end."""
        return self._updates

    def __await__(self) -> Generator[Any, None, EpochMetrics]:
        """Train to the epoch's end and return its metrics."""
        return self._finish().__await__()

    async def _finish(self) -> EpochMetrics:
        async for _ in self._updates:
            pass
        return self._last()


@dataclass(frozen=True, slots=True)
class TrainingUpdate:
    """What one answer did.

    Attributes:
        loss: mean loss of its samples.
        accepted_tasks: answers of this epoch that counted so far.
        snapshot: the version afterwards.
        update: the method's own account.
        held_by: the model as it was given.
    """

    loss: float
    accepted_tasks: int
    snapshot: Snapshot
    update: Update
    held_by: Model

    @property
    def model(self) -> Any:  # noqa: ANN401 - a torch module or arrays
        """The researcher's module with this version's weights; arrays without torch."""
        return restore(self.held_by, self.snapshot)


@dataclass(frozen=True, slots=True)
class Trained:
    """What a training came to.

    Attributes:
        snapshot: the newest version; with a stop rule that restores, the best epoch's.
        epochs: metrics of the epochs that ended in this process.
        history: every update.
        tally: bytes, refusals, failures.
        held_by: the model as it was given.
    """

    snapshot: Snapshot
    epochs: tuple[EpochMetrics, ...]
    history: History
    tally: Tally
    held_by: Model

    @property
    def model(self) -> Any:  # noqa: ANN401 - a torch module or arrays
        """The researcher's module with the newest weights; arrays without torch."""
        return restore(self.held_by, self.snapshot)


def restore(model: Model, snapshot: Snapshot) -> Any:  # noqa: ANN401 - as it was given
    """Return a version as the researcher gave the model: his module, or arrays."""
    if isinstance(model, TorchModel):
        return model.load_into(snapshot)
    return dict(snapshot.parameters)


@dataclass(frozen=True, slots=True)
class _Saved:
    """What `EpochCheckpoint` writes beside the state of what is kept."""

    snapshot: Snapshot
    epochs: list[EpochMetrics]  # that led to it
    kept_as: Any
    best: list[Snapshot] = field(default_factory=list)  # see `Epochs`


class EpochCheckpoint:
    """One folder, locked against other processes from `open` to `close`.

    Args:
        folder: where; None keeps nothing.
        kept: saved and loaded with the version; None for nothing.
    """

    def __init__(self, folder: Path | None, kept: Keeper | None) -> None:
        self._checkpoint = Checkpoint(folder) if folder else None
        self._kept = kept

    async def open(self, first: Snapshot, record: Epochs) -> Snapshot:
        """Return the newest version, `first` at first; `record` gets what led to it.

        Raises:
            TrustError: ``STO-T011``.
            UsageError: ``STO-T012``, ``STO-T023``, ``STO-T012``.
        """
        if self._checkpoint is None:
            return first
        saved = await asyncio.to_thread(self._checkpoint.open)
        try:
            return first if saved is None else self._read(saved, record)
        except BaseException:
            self._checkpoint.close()
            raise

    def _read(self, saved: State, record: Epochs) -> Snapshot:
        found = parse(select(saved, "version"), _Saved)
        if found.kept_as != describe(self._kept):
            raise UsageError(
                "STO-T012",
                "the folder is of another training",
                hint="the same optimiser, and data as before: a dataset or loaders",
            )
        if self._kept is not None:
            self._kept.load(select(saved, "kept"))
        record.ended, record.best = found.epochs, found.best
        return found.snapshot

    async def put(self, snapshot: Snapshot, record: Epochs) -> None:
        """Save a version and the epochs that led to it.

        Raises:
            InternalError: ``STO-T022``.
        """
        if self._checkpoint is None:
            return
        ended, best = record.ended, record.best
        version = render(_Saved(snapshot, ended, describe(self._kept), best))
        kept = {} if self._kept is None else {"kept": self._kept.save()}
        whole = join_states(version=version, **kept)
        await asyncio.to_thread(self._checkpoint.write, whole)

    def close(self) -> None:
        """Let the folder go."""
        if self._checkpoint is not None:
            self._checkpoint.close()
