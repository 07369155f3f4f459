"""What a client has asked for, and whether it is still there; pure."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from enum import Enum
from typing import Final

from stoilo.executor.shm import Control

__all__ = ["Ending", "Lookout", "Standing", "heed"]

SILENCE_S: Final = 30.0
"""How long a client whose process cannot be found may be silent, s."""


class Ending(Enum):
    """Why the process ends before its task has; the value is its exit code.

    Without the finish file 0 means "start it again"; 194 is BOINC's "aborted by client"
    (EXIT_ABORTED_BY_CLIENT).
    """

    QUIT = 0
    ABORT = 194

    @property
    def exit_code(self) -> int:
        """What the process ends with."""
        return int(self.value)


@dataclass(frozen=True, slots=True)
class Standing:
    """What a task has to do now.

    Attributes:
        suspended: whether it stands still.
        ending: why it ends, None to go on.
    """

    suspended: bool = False
    ending: Ending | None = None


def heed(standing: Standing, wanted: frozenset[Control]) -> Standing:
    """Return the standing after one message; an ending is never taken back."""
    suspended = standing.suspended
    if Control.SUSPEND in wanted:
        suspended = True
    if Control.RESUME in wanted:
        suspended = False
    ending = standing.ending
    if Control.QUIT in wanted:
        ending = ending or Ending.QUIT
    if Control.ABORT in wanted:
        ending = Ending.ABORT
    return Standing(suspended, ending)


@dataclass(frozen=True, slots=True)
class Lookout:
    """What is known of the client's life.

    Attributes:
        heard: when it was last heard of, s.
        is_parent: whether it started this very process.
    """

    heard: float
    is_parent: bool

    def hear(self, now: float) -> Lookout:
        """Return the lookout after a sign of life."""
        return dataclasses.replace(self, heard=now)

    def is_lost(self, now: float, *, exists: bool, is_parent: bool) -> bool:
        """Whether the client has gone.

        A process of its number may be another by now, or not be visible from here: so the
        end of our parent is believed at once, and a missing number only in silence.

        Args:
            now: s.
            exists: whether there is a process of its number.
            is_parent: whether our parent has its number.
        """
        if self.is_parent and not is_parent:
            return True
        return not exists and now - self.heard > SILENCE_S
