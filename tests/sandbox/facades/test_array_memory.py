"""What arrays show of memory, asked of numpy itself after it was sealed."""

import ctypes
import io
import platform
import struct
import subprocess
import sys

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from stoilo.core.errors import InternalError
from stoilo.sandbox.facades import array_memory
from stoilo.sandbox.facades.array_memory import call_zeroed, seal_exports

RECORD = np.zeros(1, dtype=[("n", "i4"), ("name", "O")])
HOLDERS = {
    "array": np.array([object()], dtype=object),
    "masked": np.ma.array([object()], dtype=object),
    "records": RECORD,
    "recarray": RECORD.view(np.recarray),
    "record": RECORD.view(np.recarray)[0],
    "void": RECORD[0],
    "strings": np.array(["x" * 99], dtype="T"),
}
WAYS_OUT = {
    "memoryview": memoryview,
    "bytes": bytes,
    "join": lambda array: b"".join([array]),
    "tobytes": lambda array: array.tobytes(),
    "data": lambda array: array.data.tobytes(),
    "frombuffer": lambda array: np.frombuffer(array, dtype=np.uint8),
    "pack_into": lambda array: struct.pack_into("P", array, 0, 0),
    "readinto": lambda array: io.BytesIO(bytes(99)).readinto(array),
}
CONTROL = """
import numpy as np
print(any(bytes(np.array([object()], dtype=object))))
"""
WRITABLE_CODE = """
import numpy as np
from stoilo.sandbox.facades.array_memory import seal_exports
seal_exports()
maps = open("/proc/self/maps").read().splitlines()
print([line for line in maps if "wx" in line.split()[1]])
"""


@pytest.fixture(scope="module", autouse=True)
def sealed():
    seal_exports()


def run_alone(program):
    command = [sys.executable, "-c", program]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    return done.stdout.strip()


@pytest.mark.parametrize("way", WAYS_OUT)
@pytest.mark.parametrize("holder", HOLDERS)
def test_array_of_objects_gives_its_bytes_by_no_way(holder, way):
    with pytest.raises((SystemError, TypeError)):
        WAYS_OUT[way](HOLDERS[holder])


@pytest.fixture
def typed_readers(monkeypatch):
    monkeypatch.setattr(array_memory._admitted, "value", array_memory._TYPED)


def shows(array, flags):
    view, ask = (ctypes.c_void_p * 10)(), ctypes.pythonapi.PyObject_GetBuffer
    shown = ask(ctypes.py_object(array), view, flags) == 0
    if shown:
        ctypes.pythonapi.PyBuffer_Release(view)
    return shown


@pytest.mark.parametrize("holder", ["array", "masked", "records", "recarray"])
@pytest.mark.usefixtures("typed_readers")
def test_admitted_reader_asks_for_types_and_strides_without_indirection(holder):
    admitted = {flags for flags in range(512) if shows(HOLDERS[holder], flags)}
    assert admitted == {flags for flags in range(512) if flags & 0x11C == 0x1C}


def test_without_typed_readers_no_request_shows_objects():
    assert not any(shows(HOLDERS["array"], flags) for flags in range(512))


@pytest.mark.parametrize("way", WAYS_OUT)
@pytest.mark.usefixtures("typed_readers")
def test_typed_readers_open_no_way_out(way):
    with pytest.raises((SystemError, TypeError)):
        WAYS_OUT[way](HOLDERS["array"])


def count_python_calls(function):
    calls = []
    sys.setprofile(lambda _frame, event, _arg: calls.append(event))
    try:
        function()
    finally:
        sys.setprofile(None)
    return calls.count("call")


@pytest.mark.skipif(platform.machine() != "x86_64", reason="Python is asked there")
def test_array_of_numbers_is_exported_without_a_call_into_python():
    numbers = np.zeros(3)
    assert count_python_calls(lambda: memoryview(numbers)) == 1  # the lambda


@pytest.mark.parametrize("place", ["_DESCR", "_FLAGS"])
def test_array_laid_out_in_another_way_is_refused_at_the_start(monkeypatch, place):
    monkeypatch.setattr(array_memory, place, getattr(array_memory, place) + 8)
    with pytest.raises(InternalError) as caught:
        array_memory._check_layout()
    assert caught.value.code == "STO-P001"


def test_unsealed_numpy_gives_addresses():
    assert run_alone(CONTROL) == "True"


def test_sealing_leaves_no_page_both_writable_and_executable():
    assert run_alone(WRITABLE_CODE) == "[]"


@given(st.binary(max_size=64))
def test_array_of_numbers_gives_its_bytes(data):
    array = np.frombuffer(data, dtype=np.uint8)
    assert bytes(array) == memoryview(array).tobytes() == array.tobytes() == data


def test_record_of_numbers_gives_its_bytes():
    record = np.array([(1, 2.5)], dtype=[("a", "<i4"), ("b", "<f8")])
    assert bytes(record[0]) == record.tobytes() == struct.pack("<id", 1, 2.5)


def test_generators_that_read_buffers_still_work():
    rng = np.random.default_rng(1)
    assert sorted(rng.permutation(4)) == [0, 1, 2, 3]
    assert rng.multinomial(5, [0.5, 0.5]).sum() == 5


@given(st.integers(1, 3000), st.sampled_from("?bhilqfdgFDGMm"))
def test_zeroed_call_starts_from_zeros(size, code):
    dirty = [np.full(size, 7.5) for _ in range(4)]
    del dirty
    fresh = call_zeroed(
        np.empty, size, np.dtype(f"{code}8[s]" if code in "Mm" else code)
    )
    assert not any(fresh.tobytes())


def test_allocator_is_numpys_again_after_a_failure():
    def fail():
        raise KeyError

    for _ in range(3):
        with pytest.raises(KeyError):
            call_zeroed(fail)
    dirty = [np.full(500, 7.5) for _ in range(99)]
    del dirty
    assert any(np.empty(500).any() for _ in range(99))


def test_zeroed_arrays_and_others_free_each_other_s_memory():
    for _ in range(200):
        kept = [call_zeroed(np.empty, 64), np.empty(64)]
        kept = [array + 1 for array in kept]
        assert call_zeroed(lambda items: items[0][0] >= 0, kept) in {True, False}
