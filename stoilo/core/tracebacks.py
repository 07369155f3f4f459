"""Where in a task's module an error passed, as lines below the error's text.

    division by zero
      at helper:4
      at task:9

The innermost call is last. Volunteers tell of them, so they are hostile; and a task may
write such lines into its own text, which deceives only who wrote the task.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

from stoilo.core.types import BOUNDS

TOLD_CHARS = 1024  # what a volunteer's list may take
_CALL = re.compile(r"([\w.<>]{1,64}):([0-9]{1,7})")
_LEAD = "\n  at "


@dataclass(frozen=True, slots=True)
class Call:
    """One call that was under way."""

    name: str  # qualified name of the function; "<module>" for the module's own body
    line: int  # of the task's module, from 1


def parse_calls(told: str) -> tuple[Call, ...]:
    """Return what lines of ``name:line`` (hostile) tell; what is none is left out."""
    found = map(_CALL.fullmatch, told[:TOLD_CHARS].split("\n")[-BOUNDS.calls :])
    return tuple(Call(one[1], int(one[2])) for one in found if one)


def render_error(text: str, calls: Sequence[Call]) -> str:
    """Return an error's text with its calls below."""
    return text + "".join(f"{_LEAD}{call.name}:{call.line}" for call in calls)


def split_error(text: str) -> tuple[str, tuple[Call, ...]]:
    """Return the text and the calls of what `render_error` gave (hostile again)."""
    own, *below = text.split(_LEAD)
    return own, parse_calls("\n".join(below))
