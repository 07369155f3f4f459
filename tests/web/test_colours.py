"""Colours of hostile source: no character lost, no text that takes long."""

import io
import itertools
import keyword
import tokenize
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stoilo.core.types import BOUNDS
from stoilo.web.listing import Colour, colour_source

MODULES = sorted((Path(__file__).parents[2] / "stoilo" / "core").glob("*.py"))
PYTHON = st.lists(
    st.sampled_from(
        [
            "'",
            '"',
            "'''",
            '"""',
            "\\",
            "\n",
            "#",
            "f",
            "rb",
            "@",
            "def ",
            "1",
            ".",
            "e5",
        ]
    )
).map("".join)


def coloured(text):
    return [(piece.colour, piece.text) for piece in colour_source(text)]


@given(st.text() | PYTHON)
def test_pieces_joined_are_the_text(text):
    assert "".join(piece.text for piece in colour_source(text)) == text


@given(st.text() | PYTHON)
def test_no_piece_is_empty_and_neighbours_differ(text):
    pieces = coloured(text)
    assert all(part for _, part in pieces)
    assert all(a[0] is not b[0] for a, b in itertools.pairwise(pieces))


@pytest.mark.parametrize(
    ("text", "colour", "piece"),
    [
        ("x = 1  # why\n", Colour.COMMENT, "# why"),
        ("rb'a\\'b' + c", Colour.STRING, "rb'a\\'b'"),
        ('f"""a\n"b""" + c', Colour.STRING, 'f"""a\n"b"""'),
        ("'open\nx", Colour.STRING, "'open"),
        ("1_000.5e-3j + x", Colour.NUMBER, "1_000.5e-3j"),
        ("0xFF + x", Colour.NUMBER, "0xFF"),
        ("return x", Colour.KEYWORD, "return"),
        ("match x:\n", Colour.KEYWORD, "match"),
        ("def größe(x):", Colour.DEFINITION, "größe"),
        ("@a.b\n", Colour.DECORATOR, "@a"),
        ("y = len(x)", Colour.BUILTIN, "len"),
    ],
)
def test_token_has_its_colour(text, colour, piece):
    assert any(own is colour and part.startswith(piece) for own, part in coloured(text))


@pytest.mark.parametrize("text", ["a.len", "a @ b", "x.match", "match = a", "case(a)"])
def test_plain_names_stay_plain(text):
    assert coloured(text) == [(Colour.PLAIN, text)]


@pytest.mark.parametrize("path", MODULES, ids=lambda path: path.name)
def test_comments_strings_and_keywords_are_those_of_python(path):
    text = path.read_text()
    ours = {
        colour: "".join(part for own, part in coloured(text) if own is colour)
        for colour in (Colour.COMMENT, Colour.STRING, Colour.KEYWORD)
    }
    theirs = dict.fromkeys(ours, "")
    for token in tokenize.generate_tokens(io.StringIO(text).readline):
        if token.type == tokenize.COMMENT:
            theirs[Colour.COMMENT] += token.string
        elif token.type == tokenize.STRING:
            theirs[Colour.STRING] += token.string
        elif token.type == tokenize.NAME and keyword.iskeyword(token.string):
            theirs[Colour.KEYWORD] += token.string
    assert ours == theirs


# Each stops at least one known highlighter for minutes, or is the worst for this one.
@pytest.mark.parametrize(
    "unit",
    [
        "\n   ",
        '"a',
        "'''\\",
        '"""a" "" ',
        "1 ",
        "@a.",
        "import a,",
        "match x ",
        "\\\n",
        "(",
    ],
)
def test_largest_hostile_text_is_coloured(unit):
    text = (unit * BOUNDS.source_bytes)[: BOUNDS.source_bytes]
    assert sum(len(piece.text) for piece in colour_source(text)) == len(text)
