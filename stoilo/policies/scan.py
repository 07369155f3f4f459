"""One linear pass over the text before the parser sees it: brackets and identifiers.

The lexical grammar needed is small (comments, strings, words, brackets), and every
alternative below consumes what it matched, so hostile text costs linear time. What is
wrong with the text beyond that is the parser's to say.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

from stoilo.policies.findings import Place, make_finding

if TYPE_CHECKING:
    from collections.abc import Iterator

    from stoilo.core.types import Finding

__all__ = ["Word", "find_deep_brackets", "find_words"]

# Words as CPython's tokenizer takes them first: any non-ASCII character belongs to one.
_LEXEME = re.compile(
    r"""
    (?P<skip>
        \#[^\n]*+
      | '{3}(?:[^\\']|\\.|'(?!''))*+(?:'{3}|\Z)
      | "{3}(?:[^\\"]|\\.|"(?!""))*+(?:"{3}|\Z)
      | '(?:[^\\'\n]|\\.)*+'?
      | "(?:[^\\"\n]|\\.)*+"?
    )
  | (?P<word>(?:[A-Za-z_]|[^\x00-\x7f])(?:[A-Za-z0-9_]|[^\x00-\x7f])*+)
  | (?P<open>[(\[{])
  | (?P<close>[)\]}])
    """,
    re.VERBOSE | re.DOTALL,
)


@dataclass(frozen=True, slots=True)
class Word:
    """One identifier or keyword as written, with its place."""

    text: str
    place: Place


def find_words(text: str) -> Iterator[Word]:
    """Yield the non-ASCII words outside strings and comments, in order."""
    line, line_start, seen = 1, 0, 0
    for match in _LEXEME.finditer(text):
        word = match["word"]
        if word is None or word.isascii():
            continue
        breaks = text.count("\n", seen, match.start())
        if breaks:
            line += breaks
            line_start = text.rfind("\n", seen, match.start()) + 1
        seen = match.start()
        column = match.start() - line_start + 1
        yield Word(word, Place.of_chars(line, column, len(word)))


def find_deep_brackets(text: str, limit: int) -> list[Finding]:
    """Return a finding at the first bracket that is open `limit` + 1 deep."""
    depth = 0
    for match in _LEXEME.finditer(text):
        if match.lastgroup == "open":
            depth += 1
            if depth > limit:
                line = text.count("\n", 0, match.start()) + 1
                column = match.start() - text.rfind("\n", 0, match.start())
                message = f"brackets are nested more than {limit} deep"
                hint = "name the inner parts"
                place = Place.of_chars(line, column)
                return [make_finding("STO-P022", place, message, hint)]
        elif match.lastgroup == "close":
            depth = max(depth - 1, 0)
    return []


def find_ascii_words(text: str) -> frozenset[str]:
    """Return the ASCII words outside strings and comments."""
    words = (match["word"] for match in _LEXEME.finditer(text))
    return frozenset(word for word in words if word is not None and word.isascii())
