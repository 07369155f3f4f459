"""What the source may look like as text, before anything parses it (design §4).

A reviewer and a volunteer read the same characters that the parser reads: nothing
hidden, nothing that reorders, nothing that another decoder would read differently. The
bytes are hostile; the result is the decoded text or findings that say why there is
none.
"""

from __future__ import annotations

import codecs
import re
import unicodedata
from dataclasses import dataclass
from typing import TYPE_CHECKING

from stoilo.core.limits import BOUNDS
from stoilo.policies.findings import FINDINGS_SHOWN, FIRST_PLACE, Place, make_finding

if TYPE_CHECKING:
    from stoilo.core.types import Finding


_BIDI = re.compile("[\u061c\u200e\u200f\u202a-\u202e\u2066-\u2069]")
# Default-ignorable code points and blanks drawn as nothing (DerivedCoreProperties);
# other format characters are found by their category, Cf.
_INVISIBLE = re.compile(
    "[\u034f\u115f\u1160\u17b4\u17b5\u180b-\u180f\u2065\u2800\u3164\ufe00-\ufe0f"
    "\uffa0\ufff0-\ufff8\U000e0000-\U000e0fff]"
)
# PEP 263, as the tokenizer of CPython applies it to the first two lines.
_COOKIE = re.compile(r"[ \t\f]*#.*?coding[:=][ \t]*([-\w.]+)", re.ASCII)
_BLANK_OR_COMMENT = re.compile(r"[ \t\f]*(?:#.*)?", re.ASCII)
_SAME_FOR_ASCII = frozenset({"ascii", "iso8859-1", "iso8859-15", "cp1252"})
_REPLACEMENT = "write it as an escape in a string, or leave it out"


@dataclass(frozen=True, slots=True)
class TextReport:
    """The decoded text (None when it must not be parsed) and what was found."""

    text: str | None
    findings: tuple[Finding, ...]


def describe_char(char: str) -> str:
    """Return ``U+202E RIGHT-TO-LEFT OVERRIDE``, never the character itself."""
    return f"U+{ord(char):04X} {unicodedata.name(char, '')}".rstrip()


def check_text(data: bytes, source_bytes: int = BOUNDS.source_bytes) -> TextReport:
    """Check size, encoding, characters, lines and coding cookie of hostile `data`.

    Args:
        data: the module exactly as uploaded.
        source_bytes: the largest size, bytes.
    """
    if len(data) > source_bytes:
        return _refuse(
            "STO-P010",
            FIRST_PLACE,
            f"the source has {len(data):,} bytes; the limit is {source_bytes:,}",
            "send data as arguments, not inside the source",
        )
    if data.startswith(codecs.BOM_UTF8):
        return _refuse(
            "STO-P011",
            FIRST_PLACE,
            "the source begins with a byte order mark",
            "save the file as UTF-8 without BOM; the client does it for you",
        )
    try:
        text = data.decode("utf-8")
    except UnicodeDecodeError as error:
        return _refuse_encoding(data, error)
    findings = [*_find_characters(text), *_find_long_lines(text), *_find_cookie(text)]
    return TextReport(None if findings else text, tuple(findings))


def _refuse(code: str, place: Place, message: str, hint: str) -> TextReport:
    return TextReport(None, (make_finding(code, place, message, hint),))


def _refuse_encoding(data: bytes, error: UnicodeDecodeError) -> TextReport:
    good = data[: error.start].decode("utf-8")
    line = good.count("\n") + 1
    column = len(good) - (good.rfind("\n") + 1) + 1
    return _refuse(
        "STO-P011",
        Place.of_chars(line, column),
        f"not UTF-8: byte 0x{data[error.start]:02x} at offset {error.start}",
        "save the file as UTF-8",
    )


def _find_characters(text: str) -> list[Finding]:
    """Return findings for forbidden characters, up to one more than are ever shown."""
    findings: list[Finding] = []
    if text.isascii() and text.isprintable():
        return findings
    for number, line in enumerate(text.split("\n"), start=1):
        if line.isascii() and line.isprintable():
            continue
        for column, char in enumerate(line, start=1):
            rule = _judge_char(char)
            if rule is not None:
                code, what, hint = rule
                message = f"{what}: {describe_char(char)}"
                place = Place.of_chars(number, column)
                findings.append(make_finding(code, place, message, hint))
                if len(findings) > FINDINGS_SHOWN:
                    return findings
    return findings


def _judge_char(char: str) -> tuple[str, str, str] | None:
    """Return (code, what, hint) when `char` must not stand in a source."""
    if char == "\t" or (char.isascii() and char.isprintable()):
        return None
    if char == "\r":
        hint = "use \\n line ends; the client normalises CRLF for you"
        return "STO-P013", "a carriage return", hint
    if _BIDI.match(char):
        return "STO-P013", "a character that reorders the text shown", _REPLACEMENT
    category = unicodedata.category(char)
    if category == "Cf" or _INVISIBLE.match(char):
        return "STO-P013", "an invisible character", _REPLACEMENT
    if category in {"Cc", "Zl", "Zp"}:
        return "STO-P013", "a control character", _REPLACEMENT
    return None


def _find_long_lines(text: str) -> list[Finding]:
    limit = BOUNDS.source_line_chars
    if len(text) <= limit:
        return []
    return [
        make_finding(
            "STO-P010",
            Place(number, limit + 1, number, len(line) + 1),
            f"the line has {len(line):,} characters; the limit is {limit:,}",
            "break the line, or send the data as an argument",
        )
        for number, line in enumerate(text.split("\n"), start=1)
        if len(line) > limit
    ]


def _find_cookie(text: str) -> list[Finding]:
    """Return a finding when a coding cookie would show other readers other text."""
    for number, line in enumerate(text.split("\n", 2)[:2], start=1):
        match = _COOKIE.match(line)
        if match:
            if _keeps_meaning(match[1], text):
                return []
            place = Place(number, match.start(1) + 1, number, match.end(1) + 1)
            message = f"the coding cookie {match[1][:40]!r} changes what the bytes mean"
            hint = "remove the cookie: sources are UTF-8"
            return [make_finding("STO-P011", place, message, hint)]
        if not _BLANK_OR_COMMENT.fullmatch(line):
            break
    return []


def _keeps_meaning(cookie: str, text: str) -> bool:
    try:
        name = codecs.lookup(cookie).name
    except (LookupError, ValueError):
        return False
    return name == "utf-8" or (name in _SAME_FOR_ASCII and text.isascii())
