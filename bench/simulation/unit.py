"""One simulated workunit: the engine's rows of it, in memory."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from stoilo.server.engines.embedded.db.records import WorkunitView

__all__ = ["Unit"]


@dataclass(slots=True)
class Unit:
    """One workunit as the engine's tables hold it."""

    number: int
    view: WorkunitView
    transition_at: int
    hosts: list[int] = field(default_factory=list)  # of each copy, 0 while unsent
    answers: dict[str, str] = field(default_factory=dict)  # by copy
    credited: set[str] = field(default_factory=set)
    check_pending: bool = False

    def place(self, copy: str) -> int:
        """Return the index of a copy; its name ends with it."""
        return int(copy.rpartition("_")[2])

    def change(self, copy: str, **changes: object) -> None:
        """Give a copy other columns."""
        copies = list(self.view.results)
        at = self.place(copy)
        copies[at] = replace(copies[at], **changes)  # type: ignore[arg-type]  # its fields
        self.view = replace(self.view, results=tuple(copies))
