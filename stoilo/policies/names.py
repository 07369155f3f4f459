"""Identifiers that are not what they look like, and brackets too deep for the parser.

After Unicode TS 39 (single-script identifiers, whole-script confusables), with a small
table of letters that fonts draw the same, so that a Greek alpha or a Russian word stays
usable.
Python reads identifiers in form NFKC, so that is the form compared here.
"""

from __future__ import annotations

import re
import unicodedata
from dataclasses import dataclass
from typing import TYPE_CHECKING

from stoilo.core.types import Finding, Severity
from stoilo.policies.findings import Place, make_finding

if TYPE_CHECKING:
    from collections.abc import Iterator


# Words as CPython's tokenizer takes them first: any non-ASCII character belongs to one.
# No alternative can fail once it has begun, so none is ever tried backwards. Possessive
# quantifiers would say the same, but match wrongly before Python 3.11.5 (gh-106052).
# One linear pass over the text before the parser sees it: brackets and identifiers
#
# The lexical grammar needed is small (comments, strings, words, brackets), and every
# alternative below consumes what it matched, so hostile text costs linear time. What is
# wrong with the text beyond that is the parser's to say.


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


# Letters drawn like ASCII letters, and those; after Unicode TS 39's confusables.
_SAME_SHAPE = str.maketrans(
    "\u0430\u0435\u043e\u0440\u0441\u0445\u0443\u0456\u0458\u0455\u04bb\u0501"
    "\u051b\u051d\u04cf\u04af\u0410\u0412\u0415\u0405\u0406\u0408\u041a\u041c"
    "\u041d\u041e\u0420\u0421\u0422\u0425\u0423\u04ae\u050c\u051a\u051c"
    "\u03bf\u0391\u0392\u0395\u0396\u0397\u0399\u039a\u039c\u039d\u039f\u03a1"
    "\u03a4\u03a5\u03a7"
    "\u0578\u057d\u0581\u0585\u0566\u053c\u054f\u0555"  # Armenian
    "\u0131\u0251\u0261\u01c0\u028f\ua7ae\u0196",  # Latin
    "aeopcxyijshd"  # Cyrillic
    "qwlyABESIJKM"  # Cyrillic
    "HOPCTXYYGQW"  # Cyrillic
    "oABEZHIKMNOP"  # Greek
    "TYX"  # Greek
    "nugoqLSO"  # Armenian
    "iaglyII",  # Latin
)
# Greek letters that differ in good fonts only; reported when both names are in use.
_NEAR_SHAPE = str.maketrans("\u03b9\u03ba\u03bd\u03c1\u03c5\u03c7", "ikvpux")
_JAPANESE = frozenset({"CJK", "HIRAGANA", "KATAKANA", "KATAKANA-HIRAGANA"})
_ALLOWED_TOGETHER = (
    _JAPANESE,
    frozenset({"CJK", "HANGUL"}),
    frozenset({"CJK", "BOPOMOFO"}),
)
_MICRO = str.maketrans({"\u00b5": "\u03bc"})  # drawn the same, read the same
_INHERITED = frozenset({"Mn", "Mc", "Pc", "Sk", "Lm"})


def find_deceptive_names(text: str) -> list[Finding]:
    """Return findings for names that mix scripts or pass for other names."""
    if text.isascii():
        return []
    found: list[Finding] = []
    judged: dict[str, tuple[str, str, str] | None] = {}
    near: list[Word] = []
    for word in find_words(text):
        if word.text not in judged:
            judged[word.text] = _judge_name(word.text)
        rule = judged[word.text]
        if rule is not None:
            found.append(make_finding(rule[0], word.place, rule[1], rule[2]))
        else:
            near.append(word)
    return [*found, *_find_near_names(near, text)]


def _judge_name(name: str) -> tuple[str, str, str] | None:
    """Return (code, message, hint) when `name` deceives."""
    read_as = unicodedata.normalize("NFKC", name)
    if unicodedata.normalize("NFC", name.translate(_MICRO)) != read_as:
        message = f"the name is read as {read_as!a} but is not written like it"
        return "STO-P020", message, f"write {read_as}"
    scripts = _scripts_of(read_as)
    if len(scripts) > 1 and not any(scripts <= pair for pair in _ALLOWED_TOGETHER):
        listed = " and ".join(sorted(script.capitalize() for script in scripts))
        message = f"the name {read_as!a} mixes {listed} letters"
        return "STO-P020", message, "write the name in one script"
    looks_like = read_as.translate(_SAME_SHAPE)
    if looks_like.isascii() and looks_like != read_as:
        message = f"the name {read_as!a} looks like {looks_like!r} and is another"
        return "STO-P020", message, "use ASCII letters, or letters that look like none"
    return None


def _scripts_of(name: str) -> frozenset[str]:
    return frozenset(
        _script_of(char)
        for char in name
        if not (char.isascii() and not char.isalpha())
        and unicodedata.category(char) not in _INHERITED
    )


def _script_of(char: str) -> str:
    """Return the first word of the character's name, which names its script."""
    first = unicodedata.name(char, "UNKNOWN").split(" ", 1)[0]
    return first if first == "KATAKANA-HIRAGANA" else first.split("-", 1)[0]


def _find_near_names(words: list[Word], text: str) -> list[Finding]:
    """Return warnings for names beside which a look-alike ASCII name is in use."""
    if not words:
        return []
    used = find_ascii_words(text)
    findings: list[Finding] = []
    for word in words:
        twin = word.text.translate(_SAME_SHAPE).translate(_NEAR_SHAPE)
        if twin in used:
            message = f"the name {word.text!a} can be mistaken for {twin!r} here"
            hint = "rename one of them"
            finding = make_finding(
                "STO-P020", word.place, message, hint, Severity.WARNING
            )
            findings.append(finding)
    return findings
