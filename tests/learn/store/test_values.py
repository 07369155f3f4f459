"""Values and their bytes."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays

from stoilo.core.errors import TrustError, UsageError
from stoilo.learn.core.tensors import Array
from stoilo.learn.store.protocol import Cell
from stoilo.learn.store.values import check_kind, decode, encode

DTYPES = st.sampled_from(["f2", "f4", "f8", ">f8", "i1", "i8", "u2", "?"])


@given(arrays.arrays(DTYPES, arrays.array_shapes(min_dims=0, min_side=0)))
def test_array_comes_back_as_it_was(array):
    found = decode(encode(array), Array)
    assert found.dtype == array.dtype.newbyteorder("=")
    assert np.array_equal(found, array, equal_nan=array.dtype.kind == "f")


NUMBERS = st.integers(-(2**63), 2**64 - 1)


@given(NUMBERS | st.floats(allow_nan=False) | st.dictionaries(st.text(), NUMBERS))
def test_plain_value_comes_back_as_it_was(value):
    check_kind(value)
    assert decode(encode(Cell(value, 3, {"r/w": 1})), Cell) == Cell(
        value, 3, {"r/w": 1}
    )


@pytest.mark.parametrize(
    "value", ["text", None, [1], {"a": "b"}, {1: 2}, np.array(["x"]), np.array([{}])]
)
def test_what_is_no_value_is_refused(value):
    with pytest.raises(UsageError, match="STO-T068"):
        check_kind(value)


def test_number_that_no_file_holds_is_refused():
    with pytest.raises(UsageError, match="STO-T068"):
        encode(10**200)


@given(st.binary())
def test_any_bytes_are_a_cell_or_refused_by_name(body):
    try:
        decode(body, Cell)
    except TrustError as error:
        assert error.code == "STO-T011"


@pytest.mark.parametrize("size", [0, 3, 20])
def test_array_that_is_cut_is_refused(size):
    body = encode(np.arange(3.0))
    with pytest.raises(TrustError, match="STO-T011"):
        decode(body[: len(body) - size - 1], Array)
