from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stoilo.core.tracebacks import Call, parse_calls, render_error, split_error
from stoilo.core.types import BOUNDS

NAMES = st.from_regex(r"[a-zä_][\w.]{0,20}(<locals>)?", fullmatch=True)
CALLS = st.lists(st.builds(Call, NAMES, st.integers(0, 9_999_999)), max_size=12)


@given(st.text().filter(lambda text: "\n  at " not in text), CALLS)
def test_calls_below_a_text_are_read_again(text: str, calls: list[Call]) -> None:
    assert split_error(render_error(text, calls)) == (text, tuple(calls))


@pytest.mark.parametrize(
    "told", ["", "f", "f:", ":1", "f:1 ", "a b:1", "f:12345678", "f:-1", "<b>&:1"]
)
def test_what_is_no_call_is_left_out(told: str) -> None:
    assert parse_calls(told) == ()


@given(st.text(max_size=3000))
def test_anything_told_ends_in_a_few_calls(told: str) -> None:
    assert len(parse_calls(told)) <= BOUNDS.calls


def test_innermost_calls_are_kept() -> None:
    told = "\n".join(f"f:{line}" for line in range(50))
    assert parse_calls(told)[-1] == Call("f", 49)
    assert len(parse_calls(told)) == BOUNDS.calls
