"""Checkpoints: whole or not at all, arrays once, and nothing but arrays and data."""

import json
import subprocess
import sys

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays
from safetensors.numpy import save_file

from stoilo.core.errors import InternalError, TrustError, UsageError
from stoilo.learn.core.checkpoint import NAME, Checkpoint, Lines
from stoilo.learn.core.states import State

ARRAY = np.arange(6.0).reshape(2, 3)
STATE = State({"a/b": ARRAY}, {"epoch": 3, "keys": ["x"]})
TYPES = st.sampled_from(["?", "i1", "<i8", "u2", "f2", "f4", ">f4", "f8"])


def packs(folder):
    return sorted(path.name for path in (folder / "arrays").iterdir())


def write(folder, state, lines=None):
    checkpoint = Checkpoint(folder)
    checkpoint.open()
    checkpoint.write(state, lines)
    checkpoint.close()


def read(folder):
    checkpoint = Checkpoint(folder)
    found = checkpoint.open()
    checkpoint.close()
    return found


def test_state_comes_back_as_it_was(tmp_path):
    write(tmp_path, STATE)
    found = read(tmp_path)
    assert found.plain == STATE.plain
    np.testing.assert_array_equal(found.tensors["a/b"], ARRAY)


@settings(max_examples=40, deadline=None)
@given(arrays.arrays(TYPES, arrays.array_shapes(min_dims=0, min_side=0)))
def test_array_of_any_form_comes_back_with_it(tmp_path_factory, array):
    folder = tmp_path_factory.mktemp("any")
    write(folder, State({"a": array, "b": array.T}, {}))
    found = read(folder).tensors
    np.testing.assert_array_equal(found["a"], array)
    np.testing.assert_array_equal(found["b"], array.T)
    assert found["a"].dtype == array.dtype.newbyteorder("=")


def test_folder_without_a_checkpoint_gives_none(tmp_path):
    assert read(tmp_path) is None


def test_array_is_written_once_whatever_it_is_called(tmp_path):
    checkpoint = Checkpoint(tmp_path)
    checkpoint.open()
    checkpoint.write(STATE)
    once = packs(tmp_path)
    checkpoint.write(State({"now": ARRAY, "too": ARRAY}, {}))
    checkpoint.close()
    assert packs(tmp_path) == once
    assert all((array == ARRAY).all() for array in read(tmp_path).tensors.values())


def test_arrays_that_nothing_names_are_removed(tmp_path):
    checkpoint = Checkpoint(tmp_path)
    checkpoint.open()
    fixed = ARRAY[0]
    for number in range(5):
        checkpoint.write(State({"a": ARRAY + number, "fixed": fixed}, {}))
    checkpoint.close()
    assert len(packs(tmp_path)) == 2
    assert read(tmp_path).tensors["a"][0, 0] == 4.0


def test_write_that_is_cut_leaves_the_old_one(tmp_path):
    write(tmp_path, STATE)
    (tmp_path / "run.json.new").mkdir()  # it cannot be written over
    with pytest.raises(InternalError, match="STO-T022"):
        write(tmp_path, State({"a": ARRAY + 1}, {"epoch": 4}))
    assert read(tmp_path).plain["epoch"] == 3


def test_write_after_one_that_failed_is_whole(tmp_path):
    checkpoint = Checkpoint(tmp_path)
    checkpoint.open()
    (tmp_path / "arrays").touch()  # in the folder's place
    with pytest.raises(InternalError, match="STO-T022"):
        checkpoint.write(STATE)
    (tmp_path / "arrays").unlink()
    checkpoint.write(STATE)
    checkpoint.close()
    np.testing.assert_array_equal(read(tmp_path).tensors["a/b"], ARRAY)


def test_write_after_one_without_memory_is_whole(tmp_path, monkeypatch):
    checkpoint = Checkpoint(tmp_path)
    checkpoint.open()
    with monkeypatch.context() as patch:
        patch.setattr("stoilo.learn.core.checkpoint.save_file", out_of_memory)
        with pytest.raises(InternalError, match="STO-T022"):
            checkpoint.write(STATE)
    checkpoint.write(STATE)
    checkpoint.close()
    np.testing.assert_array_equal(read(tmp_path).tensors["a/b"], ARRAY)


def out_of_memory(*_):
    raise MemoryError


def test_number_that_json_has_not_is_our_error(tmp_path):
    with pytest.raises(InternalError, match="STO-T022"):
        write(tmp_path, State({}, {"value": float("inf")}))


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"\x80\x04\x95\x0b",
        b"\xff" * 64,
        b"[1]",
        b"{",
        b'{"format": "other", "state": {}, "arrays": {}}',
        b'{"format": "stoilo-run-3", "state": 1, "arrays": {}}',
        b'{"format": "stoilo-run-3", "state": {}, "arrays": {"a": ["../../x", "a"]}}',
        b'{"format": "stoilo-run-3", "state": {}, "arrays": {"a": ["00000009", "a"]}}',
        b'{"format": "stoilo-run-3", "state": {}, "arrays": {"a": 7}}',
        b'{"format": "stoilo-run-3", "state": {}, "arrays": {"c": ["00000001", "c"]}}',
    ],
)
def test_file_that_is_no_checkpoint_is_our_error(tmp_path, data):
    write(tmp_path, STATE)
    (tmp_path / NAME).write_bytes(data)
    with pytest.raises(TrustError, match="STO-T011"):
        read(tmp_path)


@pytest.mark.parametrize("place", range(0, 240, 24))
@pytest.mark.parametrize("how", ["cut", "changed"])
def test_arrays_that_are_damaged_are_our_error(tmp_path, place, how):
    write(tmp_path, STATE)
    (path,) = (tmp_path / "arrays").iterdir()
    data = bytearray(path.read_bytes())
    if how == "cut":
        del data[place:]
    else:
        data[-1 - place % 48] ^= 1
    path.write_bytes(data)
    with pytest.raises(TrustError, match="STO-T011"):
        read(tmp_path)


def test_arrays_of_somebody_else_are_our_error(tmp_path):
    write(tmp_path, STATE)
    (path,) = (tmp_path / "arrays").iterdir()
    save_file({"a/b": ARRAY}, path)
    with pytest.raises(TrustError, match="STO-T011"):
        read(tmp_path)


def test_lines_behind_the_saved_end_are_cut(tmp_path):
    path = tmp_path / "lines"
    write(tmp_path, STATE, Lines(path, 0, b"one\n"))
    path.write_bytes(b"one\ntwo\nhal")
    write(tmp_path, STATE, Lines(path, 4, b"2\n"))
    assert path.read_bytes() == b"one\n2\n"


HOLD = """import pathlib, sys
from stoilo.learn.core.checkpoint import Checkpoint
Checkpoint(pathlib.Path(sys.argv[1])).open()
print(flush=True)
sys.stdin.read()
"""


def test_folder_of_a_living_process_is_refused_and_of_a_killed_one_taken(tmp_path):
    command = [sys.executable, "-c", HOLD, str(tmp_path)]
    pipe = subprocess.PIPE
    with subprocess.Popen(command, stdin=pipe, stdout=pipe) as other:
        other.stdout.readline()
        with pytest.raises(UsageError, match="STO-T023"):
            read(tmp_path)
        other.kill()
    assert read(tmp_path) is None


def test_second_run_of_a_process_takes_the_folder_over_and_the_first_writes_no_more(
    tmp_path,
):
    first, second = Checkpoint(tmp_path), Checkpoint(tmp_path)
    first.open()
    second.open()
    with pytest.raises(UsageError, match="STO-T023"):
        first.write(STATE)
    first.close()
    second.write(STATE)
    second.close()
    assert read(tmp_path).plain == STATE.plain


def test_folder_stays_locked_when_the_run_that_lost_it_is_closed(tmp_path):
    first, second = Checkpoint(tmp_path), Checkpoint(tmp_path)
    first.open()
    second.open()
    first.close()
    command = [sys.executable, "-c", HOLD, str(tmp_path)]
    other = subprocess.run(command, capture_output=True, check=False, input=b"")
    assert b"STO-T023" in other.stderr
    second.close()


def test_state_is_plain_json_beside_the_arrays(tmp_path):
    write(tmp_path, STATE)
    assert json.loads((tmp_path / NAME).read_bytes())["state"] == STATE.plain
