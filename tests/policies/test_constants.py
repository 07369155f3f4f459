import ast

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stoilo.policies.findings import Lines
from stoilo.policies.limits import find_large_constants

REFUSED = {
    "tower": ("9**9**9", "STO-P029"),
    "taller tower": ("9**9**9**9", "STO-P029"),
    "huge power": ("2**(10**9)", "STO-P029"),
    "shift": ("1 << 10**10", "STO-P029"),
    "string": ("'a' * 10**9", "STO-P029"),
    "string, other order": ("10**9 * 'a'", "STO-P029"),
    "bytes twice": ("b'ab' * 10**5 * 10**5", "STO-P029"),
    "list": ("[0] * 10**9", "STO-P029"),
    "tuple": ("(0,) * (1 << 40)", "STO-P029"),
    "negative base": ("(-9)**9**9", "STO-P029"),
    "multiplied": ("2**60000000 * 2**60000000", "STO-P029"),
    "huge count": ("'a' * 2**200", "STO-P029"),
    "inside a default": ("def f(x=9**9**9): pass", "STO-P029"),
    "literal integer": ("x = 0x" + "f" * 5000, "STO-P010"),
    "literal text": ("x = '''" + "line of text\n" * 6000 + "'''", "STO-P010"),
}

ALLOWED = [
    "10**100",
    "2**521 - 1",
    "2**-1074",
    "10**-9",
    "1e308 * 10",
    "[0] * 10**7",
    "'-' * 80",
    "[[0] * 100] * 100",
    "x**9**9",
    "9**x**9",
    "1**10**10",
    "0 * 10**100",
    "2**31 % 10**9",
    "pow(9, 9**9, 7)",
    "3600 * 24 * 365.25",
    "'%d' % 10**5",
    "1 << 62",
    "-(2**63)",
    "~0 << 3",
    "[] * 10**9",
    "'a' + 'b' * 3",
]


@pytest.mark.parametrize("name", REFUSED)
def test_constant_that_cannot_be_computed_is_refused_once(name: str) -> None:
    text, code = REFUSED[name]
    findings = find_large_constants(ast.parse(text), Lines(text))
    assert [finding.code for finding in findings] == [code]


@pytest.mark.parametrize("text", ALLOWED)
def test_ordinary_constants_pass(text: str) -> None:
    assert find_large_constants(ast.parse(text), Lines(text)) == []


numbers = st.integers(-9, 70).map(str)
expressions = st.recursive(
    numbers,
    lambda inner: st.tuples(
        inner, st.sampled_from(["+", "-", "*", "<<", "**"]), inner
    ).map(lambda parts: f"({parts[0]} {parts[1]} {parts[2]})"),
    max_leaves=4,
)


@given(expressions)
def test_no_admitted_integer_is_larger_than_the_limit(text: str) -> None:
    if find_large_constants(ast.parse(text), Lines(text), int_bits=512):
        return
    try:
        value = eval(text)  # noqa: S307 - the expression is made of numbers above
    except (ValueError, ZeroDivisionError, TypeError, OverflowError):
        return
    assert not isinstance(value, int) or value.bit_length() <= 512
