import pytest

from stoilo.core.types import Severity
from stoilo.policies.text import find_deceptive_names

REFUSED = {
    "Cyrillic a in a Latin name": ("p\u0430yload = 1", "STO-P020"),
    "Greek omicron in a Latin name": ("\u03bfpen = 1", "STO-P020"),
    "Latin with a Greek letter": ("x_\u03b1 = 1", "STO-P020"),
    "Cyrillic name drawn like ASCII": ("\u0441\u043e\u0440 = 1", "STO-P020"),
    "one Cyrillic letter": ("\u0430 = 1", "STO-P020"),
    "Greek capital Alpha": ("\u0391 = 1", "STO-P020"),
    "dotless i": ("s\u0131ze = 1", "STO-P020"),
    "full-width": ("\uff4fpen = 1", "STO-P020"),
    "mathematical bold": ("\U0001d41e\U0001d42f\U0001d41a\U0001d425 = 1", "STO-P020"),
    "ligature": ("\ufb01t = 1", "STO-P020"),
    "lunate epsilon": ("\u03f5 = 1", "STO-P020"),
    "parameter": ("def f(\u0430): pass", "STO-P020"),
    "attribute": ("x.\u0440rint", "STO-P020"),
    "field of an f-string": ("x = f'{p\u0430y}'", "STO-P020"),
    "format of an f-string": ("x = f'{x:{\u0430}}'", "STO-P020"),
    "keyword argument": ("f(\u0435=1)", "STO-P020"),
}

ALLOWED = {
    "Greek": "\u03b1, \u03b2 = 1, 2",
    "Greek word": "\u03c3\u03c5\u03bd\u03ac\u03c1\u03c4\u03b7\u03c3\u03b7 = 1",
    "Cyrillic word": "\u043c\u0430\u0441\u0441\u0430 = 1",
    "Latin with accents": "gr\u00f6\u00dfe = 1",
    "Japanese mixes its scripts": "\u5927\u304d\u3055\u30e9\u30d9\u30eb = 1",
    "Chinese": "\u6570\u636e = 1",
    "Korean": "\uac12 = 1",
    "Hebrew": "\u05e2\u05e8\u05da = 1",
    "Greek with digits": "\u03b8_1 = 1",
    "micro sign": "\u00b5 = 1",
    "decomposed accent": "gro\u0308sse = 1",
    "mean bar": "x\u0304 = 1",
    "look-alike in a string": "x = '\u0430'",
    "look-alike in the text of an f-string": "x = f'\u0430 {x} p\u0430y {{\u0430}}'",
    "look-alike in a comment": "# \u0430bc",
    "look-alike in a docstring": '"""\u0430bc\n\u0430"""',
}


@pytest.mark.parametrize("name", REFUSED)
def test_name_that_deceives_is_refused(name: str) -> None:
    text, code = REFUSED[name]
    assert [finding.code for finding in find_deceptive_names(text)] == [code]


@pytest.mark.parametrize("name", ALLOWED)
def test_name_in_one_script_is_allowed(name: str) -> None:
    assert find_deceptive_names(ALLOWED[name]) == []


def test_finding_covers_the_name() -> None:
    (finding,) = find_deceptive_names("# \u00e9\nx = (1,\n  p\u0430y)")
    place = (finding.line, finding.column, finding.end_line, finding.end_column)
    assert place == (3, 3, 3, 6)


def test_greek_letter_beside_its_latin_twin_is_a_warning() -> None:
    (finding,) = find_deceptive_names("v = 1\n\u03bd = 2")
    assert (finding.code, finding.severity) == ("STO-P020", Severity.WARNING)


def test_message_is_plain_ascii() -> None:
    (finding,) = find_deceptive_names("p\u0430yload = 1")
    assert finding.message.isascii()
