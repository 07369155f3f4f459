"""Hostile source as HTML: inert, complete, nothing hidden."""

import html
import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stoilo.web.listing import MAX_LINES, is_hidden, list_source, reveal

TAG = re.compile(r'<span class="(?:[a-z]|hidden-char" title="[^"<>]*)">|</span>')


def plain(line):
    """Return a line's text: our own tags away, then unescaped."""
    return html.unescape(TAG.sub("", str(line)))


@given(st.text(st.characters(blacklist_categories=("Cs",)), max_size=200))
def test_only_our_own_tags_are_markup(text):
    for line in list_source(text.encode()).lines:
        assert "<" not in TAG.sub("", str(line))
        assert '"' not in TAG.sub("", str(line))


@given(st.text(st.characters(min_codepoint=32, max_codepoint=126), max_size=200))
def test_ascii_text_comes_back_whole(text):
    lines = list_source(text.encode()).lines
    assert "\n".join(map(plain, lines)) == text


@given(st.binary(max_size=200))
def test_any_bytes_are_shown(data):
    listing = list_source(data)
    assert listing.total == len(listing.lines)


def test_script_becomes_text():
    (line,) = list_source(b"<script>alert('x')</script>").lines
    assert "<script" not in line
    assert plain(line) == "<script>alert('x')</script>"


@pytest.mark.parametrize(
    "char",
    [
        "\u202e",
        "\u2066",
        "\u200b",
        "\u00ad",
        "\ufeff",
        "\0",
        "\r",
        "\u3164",
        "\U000e0041",
    ],
)
def test_hidden_character_is_shown_by_its_number(char):
    (line,) = list_source(f"x = 1  # {char} y".encode()).lines
    assert char not in str(line)
    assert f"U+{ord(char):04X}" in str(line)


@pytest.mark.parametrize("text", ["größe", "масса", "大きさ", "אבג", "a\tb"])
def test_other_alphabets_are_left_alone(text):
    assert str(reveal(text.replace("\t", " "))) == text.replace("\t", " ")
    assert not any(map(is_hidden, text))


def test_marks_name_line_and_character():
    marks = list_source("a\nb \u202e\n".encode()).marks
    assert [(mark.line, mark.name) for mark in marks] == [
        (2, "U+202E RIGHT-TO-LEFT OVERRIDE")
    ]


def test_marks_of_a_flood_are_bounded():
    assert len(list_source(("\u202e" * 5000).encode()).marks) == 100


@pytest.mark.parametrize(
    ("text", "count"), [("", 1), ("a", 1), ("a\n", 1), ("a\n\nb\n", 3)]
)
def test_lines_are_counted_as_editors_do(text, count):
    assert len(list_source(text.encode()).lines) == count


def test_more_lines_than_are_shown_are_told():
    listing = list_source(b"\n" * (MAX_LINES + 5))
    assert (len(listing.lines), listing.total) == (MAX_LINES, MAX_LINES + 5)


def test_string_over_lines_is_coloured_on_each():
    first, second = list_source(b'"""a\nb"""').lines
    assert str(first).startswith('<span class="s">')
    assert str(second).startswith('<span class="s">')
