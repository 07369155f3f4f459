"""How much work an engine holds and how long it waits: what a watcher asks any engine."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from collections.abc import Mapping

__all__ = ["EngineFigures", "MeasuredEngine"]


@dataclass(frozen=True, slots=True)
class EngineFigures:
    """One moment of an engine. Ages are s, 0 where nothing waits.

    Attributes:
        workunits: under way.
        copies: by (state, outcome), both of `interface`'s lists.
        unsent_age_s: of the oldest copy that nobody has.
        to_validate: results that the validator has not seen.
        to_validate_age_s: since the oldest of them was reported.
        outcomes_waiting: ended workunits that the server has not taken.
        accounts: volunteers' accounts.
        hosts: how many called within a time, by that time in words.
        hosts_banned: hosts whose results count for nothing.
    """

    workunits: int
    copies: Mapping[tuple[str, str], int]
    unsent_age_s: int
    to_validate: int
    to_validate_age_s: int
    outcomes_waiting: int
    accounts: int
    hosts: Mapping[str, int]
    hosts_banned: int


class MeasuredEngine(Protocol):
    """An engine that can be watched."""

    def check_database(self) -> None:
        """Return when its database has answered a small question.

        Raises:
            InternalError: it cannot be read.
        """
        ...

    def figures(self) -> EngineFigures:
        """Return what it holds now, or held not long ago.

        Raises:
            InternalError: its database cannot be read.
        """
        ...
