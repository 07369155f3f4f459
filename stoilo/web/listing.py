"""A source as HTML: lines with anchors, colours, and nothing hidden. Pure.

The text is hostile. Everything is escaped here, piece by piece; what the gate would call
hidden (bidirectional controls, invisible and control characters) is shown by its number,
also in sources of logs that were written without our gate. The style sheet lays every
line out from left to right in the order of its characters, so that no alphabet reorders.
"""

from __future__ import annotations

import functools
from dataclasses import dataclass

from markupsafe import Markup, escape

from stoilo.policies.text import check_text, describe_char
from stoilo.web.colours import Colour, colour_source

__all__ = ["MAX_LINES", "Listing", "Mark", "list_source", "reveal"]

MAX_LINES = 20_000


@dataclass(frozen=True, slots=True)
class Mark:
    """A hidden character that was found in a source.

    Attributes:
        line: counts from 1.
        name: for example ``U+202E RIGHT-TO-LEFT OVERRIDE``.
    """

    line: int
    name: str


@dataclass(frozen=True, slots=True)
class Listing:
    """A source ready to be shown.

    Attributes:
        lines: safe HTML, one a line, without the line's end.
        total: lines of the source; more than `lines` when it is longer than is shown.
        marks: hidden characters, in order, at most 100.
    """

    lines: tuple[Markup, ...]
    total: int
    marks: tuple[Mark, ...]


_MAX_MARKS = 100


@functools.lru_cache(maxsize=8)  # sources never change, and a long one takes a second
def list_source(data: bytes) -> Listing:
    """Return the hostile source `data` as safe HTML; bytes that are no text are shown."""
    text = data.decode("utf-8", "backslashreplace")
    lines: list[list[Markup]] = [[]]
    for piece in colour_source(text):
        for place, part in enumerate(piece.text.split("\n")):
            if place:
                lines.append([])
            if part:
                lines[-1].append(_render(piece.colour, part))
        if len(lines) > MAX_LINES:
            break
    total = text.count("\n") + (not text.endswith("\n"))
    shown = lines[: min(total, MAX_LINES)]  # the end of the last line begins no other
    joined = tuple(Markup("").join(parts) for parts in shown)
    return Listing(joined, total, _find_marks(text))


def reveal(text: str) -> Markup:
    """Return `text` (hostile) as safe HTML in which nothing is hidden."""
    if text.isascii() and text.isprintable():
        return escape(text)
    return Markup("").join(
        _REVEALED.format(describe_char(char), f"U+{ord(char):04X}")
        if is_hidden(char)
        else escape(char)
        for char in text
    )


_REVEALED = Markup('<span class="hidden-char" title="{}">{}</span>')
_COLOURED = Markup('<span class="{}">{}</span>')


def _render(colour: Colour, text: str) -> Markup:
    shown = reveal(text)
    return shown if colour is Colour.PLAIN else _COLOURED.format(colour.value, shown)


@functools.lru_cache(maxsize=4096)
def is_hidden(char: str) -> bool:
    """Whether the gate would refuse this one character in a source."""
    if char in "\n\t" or (char.isascii() and char.isprintable()):
        return False
    if not char.isprintable():
        return True
    return bool(check_text(char.encode("utf-8", "surrogatepass")).findings)


def _find_marks(text: str) -> tuple[Mark, ...]:
    marks: list[Mark] = []
    if text.isascii() and text.replace("\n", "").replace("\t", "").isprintable():
        return ()
    for number, line in enumerate(text.split("\n"), start=1):
        if line.isascii() and line.isprintable():
            continue
        hidden = (char for char in line if is_hidden(char))
        marks += [Mark(number, describe_char(char)) for char in hidden]
        if len(marks) > _MAX_MARKS:
            return tuple(marks[:_MAX_MARKS])
    return tuple(marks)
