"""What the self-test found: one row for each mechanism, and what follows from it."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from enum import StrEnum


class State(StrEnum):
    """Whether this machine has a mechanism, and whether a run had it."""

    MISSING = "missing"
    PRESENT = "present"
    ACTIVE = "active"


class Verdict(StrEnum):
    """What became of the attempts to break a mechanism."""

    HELD = "held"
    DID_NOT_HOLD = "did not hold"
    NOT_TRIED = "not tried"
    MISSING = "missing"


@dataclass(frozen=True, slots=True)
class Attempt:
    """One attempt to do what a mechanism must stop."""

    mechanism: str  # whose row it belongs to
    words: str  # what was attempted
    # ``alone``, under this mechanism and what it needs, or ``jail``, in a real run
    place: str
    # Whether the same attempt succeeds without the mechanism; None where there is no such
    # run (in the whole jail, and for what was only looked at)
    control: bool | None
    reached: bool  # whether the attempt succeeded, which it must not

    @property
    def tells(self) -> bool:
        """Whether it says anything: without the mechanism it would have succeeded."""
        return self.reached or self.control is not False


@dataclass(frozen=True, slots=True)
class Row:
    """One mechanism of the table."""

    mechanism: str  # its name
    mandatory: bool  # whether no run takes place without it
    state: State  # what this machine and a real run had
    attempts: tuple[Attempt, ...] = ()  # how it was tried to break
    detail: str = ""  # what else is to say (a version), empty if nothing

    @property
    def verdict(self) -> Verdict:
        """Broken by one success; held where an attempt that tells something failed."""
        if self.state is State.MISSING:
            return Verdict.MISSING
        if any(attempt.reached for attempt in self.attempts):
            return Verdict.DID_NOT_HOLD
        if any(attempt.tells for attempt in self.attempts):
            return Verdict.HELD
        return Verdict.NOT_TRIED


EXIT_CODES = {
    Verdict.HELD: 0,
    Verdict.MISSING: 3,
    Verdict.DID_NOT_HOLD: 4,
    Verdict.NOT_TRIED: 4,
}
"""For the worst mandatory row; what could not be tried is not claimed to hold."""


def judge_rows(rows: Iterable[Row]) -> int:
    """Return the exit code: 0 every mandatory mechanism holds, 3 one missing, 4 broken.

    A mechanism that broke counts more than one that is missing: a jail would be made. An
    optional one counts only where a run had it.
    """
    codes = {EXIT_CODES[row.verdict] for row in rows if row.mandatory}
    if any(row.verdict is Verdict.DID_NOT_HOLD for row in rows):
        codes.add(EXIT_CODES[Verdict.DID_NOT_HOLD])
    return max(codes, default=0)
