"""Colours for Python source: hostile text to coloured pieces, in linear time. Pure.

Well-known highlighters take minutes on a text of 64 KiB that is chosen badly, inside a
server that others wait for (docs/adr/0016). This scanner reads every character once: each
alternative begins with other characters, and no quantifier can give back what it took.
It knows words, not grammar: wrong colours are possible, lost or added text is not.
"""

from __future__ import annotations

import builtins
import keyword
import re
from collections.abc import Iterator
from dataclasses import dataclass
from enum import StrEnum

__all__ = ["Colour", "Piece", "colour_source"]


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
