"""Tensors in blocks of rows: back to the same, over several shards, under other names."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import array_shapes, arrays

from stoilo.core.errors import UsageError
from stoilo.learn.store.protocol import Change, Push
from stoilo.learn.store.server import ParameterServer
from stoilo.learn.store.shards import LocalShard
from stoilo.learn.store.values import Layout

TENSORS = st.dictionaries(
    st.sampled_from(["w", "b", "layer.0.weight"]),
    arrays(np.float32, array_shapes(min_dims=0, max_dims=3, max_side=9)),
)


@given(TENSORS, st.integers(1, 99))
def test_split_and_joined_is_what_it_was(tensors, block_bytes):
    layout = Layout.of(tensors, block_bytes)
    found = layout.join(layout.split(tensors))
    assert found.keys() == tensors.keys()
    for name, array in tensors.items():
        assert np.array_equal(found[name], array, equal_nan=True)


@given(TENSORS, st.integers(1, 99))
def test_block_is_no_larger_than_asked_or_one_row(tensors, block_bytes):
    for block in Layout.of(tensors, block_bytes).split(tensors).values():
        assert block.nbytes <= block_bytes or block.ndim == 0 or len(block) == 1


def test_large_tensor_lies_on_every_shard():
    shards = {f"shard{index}": LocalShard() for index in range(3)}
    large = {"w": np.arange(4000.0).reshape(400, 10)}
    layout = Layout.of(large, 800)
    server = ParameterServer(shards)
    server.create(layout.split(large))
    assert all(shard.list_keys() for shard in shards.values())
    ones = layout.split({"w": np.ones((400, 10))})
    server.push(Push("r/w0", 0, [Change(k, "add", a) for k, a in ones.items()]))
    values = {key: cell.value for key, cell in server.read(layout.keys).items()}
    assert np.array_equal(layout.join(values)["w"], large["w"] + 1)


def test_empty_array_is_one_block():
    assert Layout.of({"w": np.zeros((0, 4))}, 1).keys == ("w",)


@pytest.mark.parametrize(("rows", "block"), [(8, 16), (9, 8), (8, 64)])
def test_values_cut_in_another_way_are_refused(rows, block):
    kept = Layout.of({"w": np.zeros(8)}, 8).keys
    with pytest.raises(UsageError, match="STO-T012"):
        Layout.of({"w": np.zeros(rows)}, block).check_kept([*kept, "w[0:9]"])


def test_joined_rows_of_another_type_are_refused():
    layout = Layout.of({"w": np.zeros(8)}, 8)
    values = {key: np.zeros(1, np.float32) for key in layout.keys}
    with pytest.raises(UsageError, match="STO-T012"):
        layout.join(values)


def test_tensor_called_like_anothers_block_is_refused():
    with pytest.raises(UsageError, match="STO-T012"):
        Layout.of({"w": np.zeros(2), "w[0:1]": np.zeros(1)}, 8)
