"""What a volunteer can do to copies that run, where their executor can."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Protocol, runtime_checkable

from stoilo.core.errors import InternalError

__all__ = ["LaunchFailedError", "PutOffError", "Steered"]


@runtime_checkable
class Steered(Protocol):
    """An executor whose runs can be held, watched, and go on after a restart."""

    def suspend(self) -> None:
        """Hold every run, and those that begin."""
        ...

    def resume(self) -> None:
        """Let every run go on."""
        ...

    def fractions(self) -> Mapping[str, float]:
        """Return how far the runs say they are, 0 to 1, by result name."""
        ...

    def keep(self, results: Collection[str]) -> None:
        """Drop what is kept on the disk of all copies but these."""
        ...


class PutOffError(InternalError):
    """The program asks to be started again later (BOINC's temporary exit).

    Attributes:
        delay_s: not before that many s.
    """

    def __init__(self, delay_s: float, reason: str) -> None:
        super().__init__("STO-X041", f"put off for {delay_s:.0f} s: {reason}")
        self.delay_s = delay_s


class LaunchFailedError(InternalError):
    """The program ended in a way that BOINC counts as the task's failure.

    Attributes:
        exit_status: as it is reported.
    """

    def __init__(self, exit_status: int, message: str) -> None:
        super().__init__("STO-F048", message)
        self.exit_status = exit_status
