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
# No alternative can fail once it has begun, so none is ever tried backwards. Possessive
# quantifiers would say the same, but match wrongly before Python 3.11.5 (gh-106052).
_LEXEME = re.compile(
    r"""
    (?P<skip>
        \#[^\n]*
      | '{3}[^\\']*(?:(?:\\.|'(?!''))[^\\']*)*(?:'{3})?
      | "{3}[^\\"]*(?:(?:\\.|"(?!""))[^\\"]*)*(?:"{3})?
      | '[^\\'\n]*(?:\\.[^\\'\n]*)*'?
      | "[^\\"\n]*(?:\\.[^\\"\n]*)*"?
    )
  | (?P<word>[A-Za-z_\x80-\U0010ffff][A-Za-z0-9_\x80-\U0010ffff]*)
  | (?P<open>[(\[{])
  | (?P<close>[)\]}])
    """,
    re.VERBOSE | re.DOTALL,
)


_FORMATTED = frozenset({"f", "fr", "rf"})
_BRACE = re.compile(r"[{}]")


@dataclass(frozen=True, slots=True)
class Word:
    """One identifier or keyword as written, with its place."""

    text: str
    place: Place


def find_words(text: str) -> Iterator[Word]:
    """Yield the non-ASCII words of the code, f-string fields included, in order."""
    line, line_start, seen = 1, 0, 0
    for start, word in _words_of_code(text):
        if word.isascii():
            continue
        breaks = text.count("\n", seen, start)
        if breaks:
            line += breaks
            line_start = text.rfind("\n", seen, start) + 1
        seen = start
        yield Word(word, Place.of_chars(line, start - line_start + 1, len(word)))


def _words_of_code(
    text: str, first: int = 0, last: int | None = None
) -> Iterator[tuple[int, str]]:
    """Yield (offset, word); strings that follow an ``f`` prefix are looked into."""
    prefix_end = -1
    for match in _LEXEME.finditer(text, first, len(text) if last is None else last):
        word = match["word"]
        if word is not None:
            yield match.start(), word
            prefix_end = match.end() if word.lower() in _FORMATTED else -1
        elif match.start() == prefix_end:
            for start, end in _fields_of(match[0]):
                offset = match.start()
                yield from _words_of_code(text, offset + start, offset + end)


def _fields_of(literal: str) -> Iterator[tuple[int, int]]:
    """Yield the spans between braces of an f-string literal; nested ones once, whole."""
    depth, start, escaped = 0, 0, -1
    for brace in _BRACE.finditer(literal):
        at = brace.start()
        if at == escaped:
            continue
        if brace[0] == "{":
            if depth == 0 and literal.startswith("{{", at):
                escaped = at + 1
                continue
            start = start if depth else at + 1
            depth += 1
        elif depth:
            depth -= 1
            if depth == 0:
                yield start, at


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
