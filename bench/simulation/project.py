"""The project that a population works for: one interface, two things behind it.

`RulesProject` (`ruled`) holds workunits in memory and lets the engine's pure rules decide;
`EngineProject` (`whole`) is the engine itself, with its database, scheduler and uploads.
Both take the same calls, so that a run can be repeated on the other and compared.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from bench.simulation.hosts import Host

__all__ = ["Assignment", "Ending", "Project", "Report"]


@dataclass(frozen=True, slots=True)
class Assignment:
    """A copy that a host was given: its name and its workunit's number."""

    copy: str
    workunit: int


@dataclass(frozen=True, slots=True)
class Report:
    """What a host brings back: a copy's answer, empty when its run failed."""

    copy: str
    answer: str


@dataclass(frozen=True, slots=True)
class Ending:
    """A workunit's outcome: its number and the accepted answer, empty without one."""

    workunit: int
    answer: str


class Project(Protocol):
    """What the run does with a project; times are whole s of the virtual clock."""

    def create(self, workunits: range, now: int) -> None:
        """Make workunits of these numbers."""
        ...

    def call(
        self, host: Host, reports: Sequence[Report], room: int, now: int
    ) -> tuple[Assignment, ...]:
        """Take a host's reports and give it up to `room` copies."""
        ...

    def settle(self, now: int) -> tuple[Ending, ...]:
        """Move what is due until it rests; return the workunits that ended."""
        ...

    def records(self) -> Mapping[int, int]:
        """Return hosts' valid results in a row, for hosts that have had any."""
        ...

    def banned(self) -> frozenset[int]:
        """Return the hosts that are banned."""
        ...
