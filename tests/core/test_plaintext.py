import pytest

from stoilo.core.errors import show_plainly


@pytest.mark.parametrize("text", ["", "é ≤ ñ\n\tx", "plain"])
def test_ordinary_text_stays(text):
    assert show_plainly(text) == text


@pytest.mark.parametrize(
    ("hostile", "shown"),
    [
        ("\x1b]0;title\x07", "\\x1b]0;title\\x07"),
        ("a\rb", "a\\rb"),
        ("\u202eevil", "\\u202eevil"),
        ("\x9b2J", "\\x9b2J"),
    ],
)
def test_what_would_command_a_terminal_is_spelled_out(hostile, shown):
    assert show_plainly(hostile) == shown
