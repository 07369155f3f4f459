"""Who keeps what a run yields: the seam between the executor and the client's runtime API."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

from stoilo.core.limits import RunLimits
from stoilo.executor.checkpoints import Checkpoint
from stoilo.sandbox.process.exchange import Exchange

__all__ = ["KeptRun", "RunKeeper"]


@dataclass(frozen=True, slots=True)
class KeptRun:
    """A verified task that is about to run.

    Attributes:
        admission: digest of its admission.
        limits: of the whole task, however often it is interrupted.
    """

    admission: str
    limits: RunLimits


class RunKeeper(Protocol):
    """Holds a task's checkpoint and its child while it runs."""

    def begin(self, run: KeptRun) -> Checkpoint | None:
        """Take up a task; return what it goes on from, None to begin."""
        ...

    def watch(self, exchange: Exchange) -> None:
        """Take the child of the task that was taken up last, before it starts."""
        ...

    def forget(self) -> None:
        """Forget the checkpoint: nothing could go on from it."""
        ...
