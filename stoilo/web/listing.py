"""A source as HTML: lines with anchors, colours, and nothing hidden. Pure.

The text is hostile. Everything is escaped here, piece by piece; what the gate would call
hidden (bidirectional controls, invisible and control characters) is shown by its number,
also in sources of logs that were written without our gate. The style sheet lays every
line out from left to right in the order of its characters, so that no alphabet reorders.
"""

from __future__ import annotations

import builtins
import functools
import keyword
import re
from collections.abc import Iterator
from dataclasses import dataclass
from enum import StrEnum

from markupsafe import Markup, escape

from stoilo.policies.text import check_text, describe_char


class Colour(StrEnum):
    """What a piece of source is; the value is its class in the style sheet."""

    PLAIN = ""
    COMMENT = "c"
    STRING = "s"
    NUMBER = "n"
    KEYWORD = "k"
    BUILTIN = "b"
    DEFINITION = "d"
    DECORATOR = "a"


@dataclass(frozen=True, slots=True)
class Piece:
    """Text of one colour; all pieces together are the source."""

    colour: Colour
    text: str


_PREFIX = r"(?:[rR][bBfF]?|[bBfF][rR]?|[uU])?"
_TOKEN = re.compile(
    rf"""
    (?P<comment> \#[^\n]*+ )
  | (?P<string> {_PREFIX} (?:
        \"\"\" (?: [^"\\] | \\[\s\S] | "(?!"") )*+ (?: \"\"\" | \\?\Z )?
      | '''    (?: [^'\\] | \\[\s\S] | '(?!'') )*+ (?: ''' | \\?\Z )?
      | "      (?: [^"\\\n] | \\[\s\S] )*+ "?
      | '      (?: [^'\\\n] | \\[\s\S] )*+ '? ) )
  | (?P<number> (?: 0[xXoObB]\w*+
      | (?: [0-9][0-9_]*+ \.?+ [0-9_]*+ | \.[0-9][0-9_]*+ ) (?: [eE][+-]?[0-9_]++ )?+ [jJ]? ) )
  | (?P<decorator> @ (?= [^\W\d] ) )
  | (?P<name> [^\W\d]\w*+ )
  | (?P<space> [^\S\n]++ )
  | (?P<line> \n )
  | (?P<other> . )
    """,
    re.VERBOSE,
)
_KEYWORDS = frozenset(keyword.kwlist)
_SOFT = re.compile(r"(?:match|case) [^=.,:)\]]")
_BUILTINS = frozenset(name for name in dir(builtins) if not name.startswith("_"))
_DEFINING = frozenset({"def", "class"})
_COLOURS = {
    "comment": Colour.COMMENT,
    "string": Colour.STRING,
    "number": Colour.NUMBER,
}


def colour_source(text: str) -> Iterator[Piece]:
    """Yield `text` (hostile) in pieces; neighbours of one colour come as one.

    Their texts joined are `text`, whatever it is.
    """
    colour, parts = Colour.PLAIN, [""]
    for piece in _scan(text):
        if piece.colour is not colour:
            if joined := "".join(parts):
                yield Piece(colour, joined)
            colour, parts = piece.colour, []
        parts.append(piece.text)
    if joined := "".join(parts):
        yield Piece(colour, joined)


def _scan(text: str) -> Iterator[Piece]:
    """Yield the tokens of `text`."""
    before, fresh, decorator = "", True, False
    for match in _TOKEN.finditer(text):
        kind, word = match.lastgroup or "", match[0]
        colour = _COLOURS.get(kind, Colour.PLAIN)
        if kind == "decorator" and fresh:
            decorator, colour = True, Colour.DECORATOR
        elif kind == "name":
            soft = fresh and bool(_SOFT.match(text, match.start()))
            colour = Colour.DECORATOR if decorator else _of_word(word, before, soft)
        elif kind not in {"other", "space"} or word not in {".", " "}:
            decorator = False
        if kind == "line":
            fresh = True
        elif kind != "space":
            fresh, before = False, word
        yield Piece(colour, word)


def _of_word(word: str, before: str, soft: bool) -> Colour:
    """Return the colour of a name by the token before it; `soft`: ``match``, ``case``."""
    if before == ".":
        return Colour.PLAIN
    if before in _DEFINING:
        return Colour.DEFINITION
    if soft or word in _KEYWORDS:
        return Colour.KEYWORD
    return Colour.BUILTIN if word in _BUILTINS else Colour.PLAIN


MAX_LINES = 20_000


@dataclass(frozen=True, slots=True)
class Mark:
    """A hidden character that was found in a source."""

    line: int  # counts from 1
    name: str  # for example `U+202E RIGHT-TO-LEFT OVERRIDE`


@dataclass(frozen=True, slots=True)
class Listing:
    """A source ready to be shown."""

    lines: tuple[Markup, ...]  # safe HTML, one a line, without the line's end
    total: int  # lines of the source; more than `lines` when it is longer than is shown
    marks: tuple[Mark, ...]  # hidden characters, in order, at most 100


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
