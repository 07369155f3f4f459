"""Hypothesis strategies for the values that travel."""

from __future__ import annotations

import math
from datetime import timedelta, timezone
from typing import Any

from hypothesis import strategies as st

from stoilo.core.codec.nodes import (
    BlobRef,
    ClassRef,
    FunctionRef,
    Instance,
    Ndarray,
    NumpyScalar,
    Tensor,
    item_bytes,
)

__all__ = ["arrays", "nodes", "plain_values", "references"]

DTYPES = (
    "bool",
    "int8",
    "int32",
    "uint64",
    "float16",
    "float32",
    "float64",
    "complex128",
)
MAX_OFFSET_S = 86_399

names = st.from_regex(r"[a-z][a-z0-9_]{0,12}", fullmatch=True)
zones = st.integers(-MAX_OFFSET_S, MAX_OFFSET_S).map(
    lambda seconds: timezone(timedelta(seconds=seconds))
)
moments = st.datetimes(timezones=st.none() | zones)
texts = st.text(max_size=20)
scalars = (
    st.none()
    | st.booleans()
    | st.integers()
    | st.integers(-(2**200), 2**200)
    | st.floats()
    | st.complex_numbers()
    | texts
    | st.binary(max_size=20)
    | moments
)


def _is_key(value: Any) -> bool:
    if isinstance(value, complex):
        return not (math.isnan(value.real) or math.isnan(value.imag))
    return not (isinstance(value, float) and math.isnan(value))


keys = scalars.filter(_is_key) | st.tuples(texts, st.integers())


@st.composite
def arrays(draw: st.DrawFn, kind: type = Ndarray) -> Any:
    """Draw an array node of `kind` with any bit pattern as its data."""
    dtype = draw(st.sampled_from(DTYPES))
    shape = tuple(draw(st.lists(st.integers(0, 4), max_size=3)))
    size = item_bytes(dtype) * math.prod(shape)
    data = draw(st.binary(min_size=size, max_size=size))
    if dtype == "bool":
        data = bytes(byte & 1 for byte in data)
    return kind(dtype, shape, data)


def _containers(inner: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    return (
        st.lists(inner, max_size=5)
        | st.lists(st.floats(), max_size=5)
        | st.lists(st.integers(-(2**70), 2**70), max_size=5)
        | st.lists(inner, max_size=5).map(tuple)
        | st.dictionaries(keys, inner, max_size=5)
        | st.sets(keys, max_size=5)
        | st.frozensets(keys, max_size=5)
    )


plain_values = st.recursive(scalars, _containers, max_leaves=12)
references = (
    st.builds(FunctionRef, names)
    | st.builds(ClassRef, names)
    | st.builds(BlobRef, st.integers(0, 63))
    | st.builds(Instance, names, st.dictionaries(names, scalars, max_size=3))
)
scalar_items = st.binary(min_size=8, max_size=8).map(
    lambda data: NumpyScalar("float64", data)
)
nodes = st.recursive(
    scalars | arrays() | arrays(Tensor) | references | scalar_items,
    _containers,
    max_leaves=12,
)
