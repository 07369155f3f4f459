import pytest
from hypothesis import given
from hypothesis import strategies as st

from stoilo.core.types import BOUNDS
from stoilo.policies.text import check_text, describe_char


def codes(data: bytes) -> list[str]:
    return [finding.code for finding in check_text(data).findings]


def place(data: bytes) -> tuple[int, int]:
    (finding,) = check_text(data).findings
    return finding.line, finding.column


REFUSED = {
    "too large": (b"#" * (BOUNDS.source_bytes + 1), "STO-P010"),
    "not UTF-8": (b"x = '\xff'", "STO-P011"),
    "UTF-16": ("x = 1".encode("utf-16"), "STO-P011"),
    "encoded surrogate": (b"x = '\xed\xa0\x80'", "STO-P011"),
    "overlong": (b"x = '\xc0\xaf'", "STO-P011"),
    "BOM": (b"\xef\xbb\xbfx = 1", "STO-P011"),
    "CRLF": (b"x = 1\r\n", "STO-P013"),
    "lone CR hides a line": (b"# harmless \rimport os", "STO-P013"),
    "NUL": (b"x = 1\0", "STO-P013"),
    "form feed": (b"\x0cx = 1", "STO-P013"),
    "vertical tab": (b"x = 1\x0b", "STO-P013"),
    "escape sequence": (b"# \x1b[2J", "STO-P013"),
    "C1 next line": ("# \u0085x".encode(), "STO-P013"),
    "line separator": ("# \u2028x".encode(), "STO-P013"),
    "paragraph separator": ("# \u2029x".encode(), "STO-P013"),
    "right-to-left override": ("# \u202ex".encode(), "STO-P013"),
    "isolate": ("x = '\u2066'".encode(), "STO-P013"),
    "Arabic letter mark": ("# \u061c".encode(), "STO-P013"),
    "zero-width space": ("x = '\u200b'".encode(), "STO-P013"),
    "zero-width joiner in a name": ("x\u200d = 1".encode(), "STO-P013"),
    "soft hyphen": ("# a\u00adb".encode(), "STO-P013"),
    "inner BOM": ("x = 1\ufeff".encode(), "STO-P013"),
    "Hangul filler": ("\u3164 = 1".encode(), "STO-P013"),
    "variation selector": ("# \ufe0f".encode(), "STO-P013"),
    "tag character": ("# \U000e0041".encode(), "STO-P013"),
    "long line": (b"#" + b"x" * BOUNDS.source_line_chars, "STO-P010"),
    "UTF-7 cookie": (b"# coding: utf-7\n", "STO-P011"),
    "latin-1 cookie over UTF-8": ("# coding=latin-1\n# é".encode(), "STO-P011"),
    "unknown cookie": (b"# -*- coding: nonsense -*-\n", "STO-P011"),
    "second-line cookie": (
        b"#!/usr/bin/python\n# vim: fileencoding=utf-16\n",
        "STO-P011",
    ),
    "codec that is no encoding": (b"# coding: rot13\n", "STO-P011"),
    "cookie with a NUL-like name": (b"# coding: .\n", "STO-P011"),
}

ALLOWED = {
    "empty": b"",
    "tabs": b"def f(d):\n\treturn 1\n",
    "Greek name": "\u03b1 = 1".encode(),
    "text in any script": "# größe 大きさ размер حجم".encode(),
    "no-break space in a string": "x = 'a\u00a0b'".encode(),
    "combining accent": "x = 'e\u0301'".encode(),
    "emoji": "x = '🙂'".encode(),
    "longest line": b"#" * BOUNDS.source_line_chars,
    "UTF-8 cookie": "# -*- coding: UTF8 -*-\n# é".encode(),
    "latin-1 cookie over ASCII": b"# coding: latin-1\n",
    "cookie in line three": b"\n\n# coding: utf-7\n",
    "cookie after code": b"x = 1\n# coding: utf-7\n",
}


@pytest.mark.parametrize("name", REFUSED)
def test_text_that_deceives_is_refused_with_its_code(name: str) -> None:
    data, code = REFUSED[name]
    report = check_text(data)
    assert report.text is None
    assert {finding.code for finding in report.findings} == {code}


@pytest.mark.parametrize("name", ALLOWED)
def test_honest_text_is_left_as_it_is(name: str) -> None:
    data = ALLOWED[name]
    report = check_text(data)
    assert report.text is not None
    assert report.text.encode() == data


def test_place_counts_characters_from_one() -> None:
    assert place("x = 1\né = '\u202e'\n".encode()) == (2, 6)


def test_place_of_a_bad_byte_counts_characters_before_it() -> None:
    assert place("a\né".encode() + b"\xff") == (2, 2)


def test_message_names_the_character_without_showing_it() -> None:
    (finding,) = check_text("# \u202e".encode()).findings
    assert "U+202E RIGHT-TO-LEFT OVERRIDE" in finding.message
    assert "\u202e" not in finding.message


def test_source_of_forbidden_bytes_has_bounded_findings() -> None:
    assert len(check_text(b"\0" * BOUNDS.source_bytes).findings) < 200
    assert len(check_text(b"\0\n" * 100_000).findings) < 200


def test_unnamed_character_is_described_by_number() -> None:
    assert describe_char("\U000e0001") == "U+E0001 LANGUAGE TAG"
    assert describe_char("\x00") == "U+0000"


@given(st.binary(max_size=200))
def test_any_bytes_give_text_or_findings(data: bytes) -> None:
    report = check_text(data)
    assert (report.text is None) == bool(report.findings)
    assert report.text is None or report.text.encode() == data
    assert all(code.startswith("STO-P01") for code in codes(data))
