"""Sparse matrices travel: they come back equal; nodes whose parts do not fit are refused."""

import hypothesis.strategies as st
import msgspec
import numpy as np
import pytest
from hypothesis import given, settings
from scipy import sparse

from stoilo.core.codec import reader, skeleton
from stoilo.core.codec.nodes import Ndarray, from_node, to_node
from stoilo.core.codec.sparse import check_sparse
from stoilo.core.errors import TrustError, UsageError

FORMATS = ["bsr", "coo", "csc", "csr", "dia", "dok", "lil"]
KINDS = [
    getattr(sparse, f"{form}_{kind}")
    for form in FORMATS
    for kind in ("array", "matrix")
]


def _travel(value):
    data = skeleton.encode(to_node(value))
    return from_node(skeleton.decode(data, reader.DATA_BOUNDS))


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.__name__)
@given(
    seed=st.integers(0, 2**32 - 1),
    shape=st.tuples(st.integers(1, 6), st.integers(1, 6)),
    dtype=st.sampled_from(
        ["float64", "float32", "int64", "int8", "complex128", "bool"]
    ),
)
@settings(max_examples=12, deadline=None)
def test_matrix_comes_back_equal(kind, seed, shape, dtype):
    rng = np.random.default_rng(seed)
    dense = (rng.integers(0, 3, shape) * rng.integers(0, 2, shape)).astype(dtype)
    made = kind(dense)
    back = _travel(made)
    assert (type(back), back.dtype, back.shape) == (type(made), made.dtype, made.shape)
    assert (back.toarray() == dense).all()


def test_empty_matrix_comes_back():
    assert _travel(sparse.csr_array((0, 5))).shape == (0, 5)


def test_an_array_of_one_dimension_is_refused():
    with pytest.raises(UsageError, match="1 dimensions"):
        to_node(sparse.coo_array(np.array([1.0, 0, 2])))


def _changed(value, **parts):
    node = to_node(value)
    made = {name: to_node(part) for name, part in parts.items()}
    return msgspec.structs.replace(node, state=node.state | made)


EYE = sparse.csr_array(np.eye(4))
PAIRS = sparse.coo_array(np.eye(4))
BLOCKS = sparse.bsr_array(np.eye(4), blocksize=(2, 2))
LINES = sparse.dia_array(np.eye(4))
INTS = EYE.indptr.dtype

HOSTILE = {
    "column outside": (EYE, {"indices": np.array([0, 1, 2, 9], INTS)}),
    "column below zero": (EYE, {"indices": np.array([0, 1, 2, -1], INTS)}),
    "line ends outside": (EYE, {"indptr": np.array([0, 1, 2, 3, 99], INTS)}),
    "lines go back": (EYE, {"indptr": np.array([0, 3, 1, 3, 4], INTS)}),
    "lines begin late": (EYE, {"indptr": np.array([1, 1, 2, 3, 4], INTS)}),
    "too few lines": (EYE, {"indptr": np.array([0, 4], INTS)}),
    "more lines than rows": (EYE, {"shape": (2, 4)}),
    "fewer values": (EYE, {"data": np.ones(2)}),
    "places of floats": (EYE, {"indices": np.arange(4.0)}),
    "places of two widths": (EYE, {"indices": np.arange(4, dtype="int8")}),
    "negative rows": (EYE, {"shape": (-4, 4)}),
    "rows beyond memory": (EYE, {"shape": (2**62, 4)}),
    "a list for each of many rows": (
        sparse.lil_array(np.eye(4)),
        {"shape": (2**31 - 1, 4)},
    ),
    "rows of text": (EYE, {"shape": ("4", 4)}),
    "three dimensions": (EYE, {"shape": (4, 4, 4)}),
    "values of text": (EYE, {"data": np.array(["a", "b", "c", "d"])}),
    "a list for values": (EYE, {"data": [1.0] * 4}),
    "row outside": (PAIRS, {"row": np.array([0, 1, 2, 4], PAIRS.row.dtype)}),
    "more rows than columns": (PAIRS, {"row": np.arange(3, dtype=PAIRS.row.dtype)}),
    "block outside": (BLOCKS, {"indices": np.array([0, 5], BLOCKS.indices.dtype)}),
    "blocks that do not fit": (BLOCKS, {"shape": (5, 4)}),
    "blocks of nothing": (BLOCKS, {"data": np.ones((2, 0, 2))}),
    "a diagonal too many": (LINES, {"offsets": np.array([0, 1], LINES.offsets.dtype)}),
    "a diagonal far away": (LINES, {"offsets": np.array([2**40])}),
    "another part": (EYE, {"extra": 1}),
}


@pytest.mark.parametrize("case", HOSTILE.values(), ids=HOSTILE.keys())
def test_hostile_matrix_is_refused(case):
    value, parts = case
    with pytest.raises(TrustError) as caught:
        from_node(_changed(value, **parts))
    assert caught.value.code == "STO-D002"


def test_places_that_were_written_into_are_noticed():
    made = sparse.csr_array(np.eye(3))
    check_sparse(made)
    made.indices[0] = 7
    with pytest.raises(TrustError, match="outside"):
        check_sparse(made)


def test_a_node_of_another_class_is_not_listed():
    node = msgspec.structs.replace(to_node(EYE), class_name="scipy.sparse.linalg.svds")
    with pytest.raises(TrustError):
        from_node(skeleton.decode(skeleton.encode(node), reader.DATA_BOUNDS))


def test_values_are_fresh_and_writable():
    back = _travel(EYE)
    back.data[0] = 5
    assert EYE.data[0] == 1
    assert isinstance(to_node(back).state["data"], Ndarray)
