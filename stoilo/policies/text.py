"""What the source may look like as text, before anything parses it (design §4).

A reviewer and a volunteer read the same characters that the parser reads: nothing
hidden, nothing that reorders, nothing that another decoder would read differently, and no
identifier that is not what it looks like. The bytes are hostile.

Identifiers: after Unicode TS 39 (single-script identifiers, whole-script confusables), with
a small table of letters that fonts draw the same, so that a Greek alpha or a Russian word
stays usable. Python reads identifiers in form NFKC, so that is the form compared here.
"""

from __future__ import annotations

import codecs
import re
import unicodedata
from dataclasses import dataclass
from typing import TYPE_CHECKING

from stoilo.core.types import BOUNDS, Finding, Severity
from stoilo.policies.findings import FINDINGS_SHOWN, FIRST_PLACE, Place, make_finding

if TYPE_CHECKING:
    from collections.abc import Iterator


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


# One linear pass over the text before the parser sees it: brackets and identifiers
#
# The lexical grammar needed is small (comments, strings, words, brackets), and every
# alternative below consumes what it matched, so hostile text costs linear time. What is
# wrong with the text beyond that is the parser's to say.


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
