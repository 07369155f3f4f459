"""An epoch under way, what each of its answers did, and what a training came to."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Generator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from stoilo.learn.models import Model, TorchModel
from stoilo.learn.work import Snapshot, Update

if TYPE_CHECKING:
    from stoilo.learn.history import History, Tally
    from stoilo.learn.trainers.metrics import EpochMetrics

__all__ = ["Epoch", "Trained", "TrainingUpdate", "render"]


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
        return render(self.held_by, self.snapshot)


@dataclass(frozen=True, slots=True)
class Trained:
    """What a training came to.

    Attributes:
        snapshot: the newest version.
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
        return render(self.held_by, self.snapshot)


def render(model: Model, snapshot: Snapshot) -> Any:  # noqa: ANN401 - as it was given
    """Return a version as the researcher gave the model: his module, or arrays."""
    if isinstance(model, TorchModel):
        return model.load_into(snapshot)
    return dict(snapshot.parameters)
