"""Checkpoints: whole or not at all, and nothing but arrays and data."""

import json

import numpy as np
import pytest
from safetensors.numpy import save

from stoilo.core.errors import TrustError
from stoilo.learn.checkpoint import NAME, read_checkpoint, write_checkpoint
from stoilo.learn.work import State

STATE = State({"a/b": np.arange(6.0).reshape(2, 3)}, {"epoch": 3, "keys": ["x"]})


def test_state_comes_back_as_it_was(tmp_path):
    write_checkpoint(tmp_path, STATE)
    found = read_checkpoint(tmp_path)
    assert found.plain == STATE.plain
    np.testing.assert_array_equal(found.tensors["a/b"], STATE.tensors["a/b"])


def test_folder_without_a_checkpoint_gives_none(tmp_path):
    assert read_checkpoint(tmp_path) is None


def test_write_that_is_cut_leaves_the_old_one(tmp_path, monkeypatch):
    write_checkpoint(tmp_path, STATE)
    monkeypatch.setattr(
        "os.fsync", lambda _: (_ for _ in ()).throw(OSError(28, "full"))
    )
    with pytest.raises(OSError, match="full"):
        write_checkpoint(tmp_path, State({}, {"epoch": 4}))
    assert read_checkpoint(tmp_path).plain["epoch"] == 3


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"\x80\x04\x95\x0b",
        b"\xff" * 64,
        save({"a": np.ones(2)}),
        save({"a": np.ones(2)}, {"format": "stoilo-run-1", "state": "[1]"}),
        save({"a": np.ones(2)}, {"format": "stoilo-run-1", "state": "{"}),
        save({"a": np.ones(2)}, {"format": "other", "state": "{}"}),
    ],
    ids=["empty", "pickle", "noise", "foreign", "no names", "cut JSON", "other format"],
)
def test_file_that_is_no_checkpoint_is_our_error(tmp_path, data):
    (tmp_path / NAME).write_bytes(data)
    with pytest.raises(TrustError, match="STO-T011"):
        read_checkpoint(tmp_path)


@pytest.mark.parametrize("cut", [1, 9, 60, -1])
def test_checkpoint_that_is_cut_is_our_error(tmp_path, cut):
    write_checkpoint(tmp_path, STATE)
    path = tmp_path / NAME
    path.write_bytes(path.read_bytes()[:cut])
    with pytest.raises(TrustError, match="STO-T011"):
        read_checkpoint(tmp_path)


def test_state_is_plain_json_beside_the_arrays(tmp_path):
    write_checkpoint(tmp_path, STATE)
    data = (tmp_path / NAME).read_bytes()
    header = json.loads(data[8 : 8 + int.from_bytes(data[:8], "little")])
    assert json.loads(header["__metadata__"]["state"]) == STATE.plain
