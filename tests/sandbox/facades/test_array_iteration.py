import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import array_shapes, mutually_broadcastable_shapes

from stoilo.sandbox.facades.arrays import nditer


def fill(shape, order="C"):
    return np.asarray(np.arange(np.prod(shape)).reshape(shape), order=order)


@given(
    array_shapes(max_dims=3, max_side=4), st.sampled_from("CF"), st.sampled_from("CFK")
)
def test_elements_come_as_from_numpy(shape, layout, order):
    array = fill(shape, layout)
    mine = [int(item) for item in nditer(array, order=order)]
    assert mine == [int(item) for item in np.nditer(array, order=order)]


@given(mutually_broadcastable_shapes(num_shapes=2, max_dims=2, max_side=3, min_side=1))
def test_operands_are_broadcast_as_by_numpy(shapes):
    operands = [fill(shape) for shape in shapes.input_shapes]
    mine = sorted(tuple(map(int, pair)) for pair in nditer(operands))
    assert mine == sorted(tuple(map(int, pair)) for pair in np.nditer(operands))


def test_multi_index_follows_the_elements():
    it = nditer(fill((2, 3)), flags=["multi_index"])
    while not it.finished:
        assert it[0] == it.multi_index[0] * 3 + it.multi_index[1] == it.index
        it.iternext()


def test_written_elements_are_the_array_s():
    array = fill((2, 2))
    with nditer(array, op_flags=["readwrite"]) as it:
        for item in it:
            item[...] = -item
    assert array.tolist() == [[0, -1], [-2, -3]]


def test_elements_are_read_only_unless_asked_for():
    with pytest.raises(ValueError, match="read-only"):
        next(iter(nditer(fill((2,)))))[...] = 1


@pytest.mark.parametrize("flag", ["buffered", "external_loop", "delay_bufalloc"])
def test_buffers_are_refused_by_name(flag):
    with pytest.raises(ValueError, match=flag):
        nditer(fill((2,)), flags=[flag])
