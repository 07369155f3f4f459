"""Values and their bytes."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays

from stoilo.core.errors import TrustError, UsageError
from stoilo.learn.store.values import Encoded, decode_value, encode_value

DTYPES = st.sampled_from(["f2", "f4", "f8", ">f8", "i1", "i8", "u2", "?"])


@given(arrays.arrays(DTYPES, arrays.array_shapes(min_dims=0, min_side=0)))
def test_array_comes_back_as_it_was(array):
    found = decode_value(encode_value(array))
    assert found.dtype == array.dtype.newbyteorder("=")
    assert np.array_equal(found, array, equal_nan=array.dtype.kind == "f")


@given(
    st.integers()
    | st.floats(allow_nan=False)
    | st.dictionaries(st.text(), st.integers())
)
def test_plain_value_comes_back_as_it_was(value):
    assert decode_value(encode_value(value)) == value


@pytest.mark.parametrize(
    "value", ["text", None, [1], {"a": "b"}, {1: 2}, np.array(["x"]), np.array([{}])]
)
def test_what_is_no_value_is_refused(value):
    with pytest.raises(UsageError, match="STO-T068"):
        encode_value(value)


@given(st.text(), st.binary())
def test_any_bytes_are_a_value_or_refused_by_name(form, body):
    try:
        decode_value(Encoded(form, body))
    except TrustError as error:
        assert error.code == "STO-T069"


@pytest.mark.parametrize(
    "form", ['["object", [1]]', '["float64", [3]]', '["f8", "x"]', "[]", "{}", '"f8"']
)
def test_form_that_does_not_fit_is_refused(form):
    with pytest.raises(TrustError, match="STO-T069"):
        decode_value(Encoded(form, b"\0" * 8))
