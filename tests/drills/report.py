"""What a drill is, what it writes down, and when it counts as contained."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import msgspec

__all__ = ["Drill", "DrillReport", "Notes", "Step", "run_drill"]


class Step(msgspec.Struct, frozen=True):
    """One thing that had to happen.

    Attributes:
        text: what.
        holds: whether it did.
        detail: what was seen.
        at_s: when, s after the drill's start.
    """

    text: str
    holds: bool
    detail: str
    at_s: float


class DrillReport(msgspec.Struct, frozen=True):
    """The end of a drill.

    Attributes:
        drill: its name.
        contained: whether every step held and the attack was stopped.
        seconds_to_contain: from its notice to its end, s; None when it was not stopped.
        bound: what holds for hosts that this machine cannot measure, in words.
        steps: in order.
    """

    drill: str
    contained: bool
    seconds_to_contain: float | None
    bound: str
    steps: tuple[Step, ...]


class Notes:
    """What a running drill writes down.

    Args:
        say: prints one line of progress.
    """

    def __init__(self, say: Callable[[str], None]) -> None:
        self._say = say
        self._began = time.monotonic()
        self._noticed: float | None = None
        self.contained_s: float | None = None
        self.steps: list[Step] = []

    def expect(self, text: str, holds: bool, detail: str = "") -> bool:
        """Write down whether `text` came true; returns it."""
        at = round(time.monotonic() - self._began, 3)
        self.steps.append(Step(text, bool(holds), detail, at))
        mark = "ok  " if holds else "FAIL"
        self._say(f"  {mark} {text}" + (f" ({detail})" if detail else ""))
        return bool(holds)

    def notice(self) -> None:
        """Start the clock: from here on somebody acts."""
        self._noticed = time.monotonic()

    def contain(self) -> None:
        """Stop the clock: the attack gets nothing any more."""
        if self._noticed is not None and self.contained_s is None:
            self.contained_s = round(time.monotonic() - self._noticed, 3)


Run = Callable[[Notes, Path, bool], None]
"""Does a drill in an empty directory; False: with its defence taken away."""


@dataclass(frozen=True, slots=True)
class Drill:
    """One rehearsal.

    Attributes:
        name: of the command line.
        title: one line.
        bound: what holds beyond what is measured.
        defence: what ``--without-defence`` takes away.
        run: does it.
    """

    name: str
    title: str
    bound: str
    defence: str
    run: Run


NOTHING_DONE: Final = "a drill without a step shows nothing"


def run_drill(
    drill: Drill, folder: Path, say: Callable[[str], None], *, defended: bool = True
) -> DrillReport:
    """Do a drill in `folder` and return how it ended.

    Args:
        drill: which.
        folder: empty; holds the throw-away project.
        say: prints one line of progress.
        defended: False takes the drill's defence away: it must then not be contained.
    """
    notes = Notes(say)
    drill.run(notes, folder, defended)
    held = bool(notes.steps) and all(step.holds for step in notes.steps)
    return DrillReport(
        drill=drill.name,
        contained=held and notes.contained_s is not None,
        seconds_to_contain=notes.contained_s,
        bound=drill.bound,
        steps=tuple(notes.steps),
    )
