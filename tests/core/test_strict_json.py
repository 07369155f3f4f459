import contextlib
import json
import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stoilo.core.errors import TrustError
from stoilo.core.signatures import parse_strict_json

VALUES = st.recursive(
    st.none() | st.booleans() | st.integers(-(10**17), 10**17) | st.text('abcé\\"[{'),
    lambda inner: st.lists(inner) | st.dictionaries(st.text("ab"), inner),
    max_leaves=8,
)


def parse(data: bytes) -> object:
    return parse_strict_json(data, max_bytes=70_000, what="text")


@given(VALUES)
def test_plain_values_survive(value: object) -> None:
    assert parse(json.dumps(value).encode()) == value


@given(st.binary(max_size=200) | st.text('[]{}":,\\1e.x').map(str.encode))
def test_any_bytes_end_in_a_value_or_our_error(data: bytes) -> None:
    with contextlib.suppress(TrustError):
        parse(data)


@pytest.mark.parametrize(
    ("data", "code"),
    [
        (b'{"a":1,"a":2}', "STO-A002"),
        (b'{"a":1,"\\u0061":2}', "STO-A002"),
        (b"[1.0]", "STO-A002"),
        (b"[1e3]", "STO-A002"),
        (b"[NaN]", "STO-A002"),
        (b"[-Infinity]", "STO-A002"),
        (b"[" + b"9" * 20 + b"]", "STO-A002"),
        (b'["\\ud800"]', "STO-A002"),
        (b"[] []", "STO-A002"),
        (b"\xff", "STO-A002"),
        (b"", "STO-A002"),
        (b"[" * 60_000, "STO-A002"),
        (b" " * 70_001, "STO-A002"),
    ],
)
def test_what_parsers_may_disagree_about_is_refused(data: bytes, code: str) -> None:
    with pytest.raises(TrustError) as caught:
        parse(data)
    assert caught.value.code == code


@pytest.mark.parametrize("data", [b'"' + b'\\"' * 34_000, b'"' * 69_999, b'"\\'])
def test_unterminated_strings_cost_linear_time(data: bytes) -> None:
    begin = time.process_time()
    with pytest.raises(TrustError, match="STO-A002"):
        parse(data)
    assert time.process_time() - begin < 1
