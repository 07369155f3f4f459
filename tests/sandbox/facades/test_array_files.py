import io
import pickle
import zipfile

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from stoilo.sandbox.facades.array_files import load, save, savez, savez_compressed
from stoilo.sandbox.language.refusals import GuardError

TERABYTES = 8 * 2**40
PICKLE = b"cbuiltins\nstr\n(VREACHED\ntR."


def made(shape="(3,)", descr="'<f8'", order="False", data=b""):
    """Return the bytes of a file with any header."""
    head = (
        f"{{'descr': {descr}, 'fortran_order': {order}, 'shape': {shape}, }}".encode()
    )
    size = len(head).to_bytes(2, "little")
    return io.BytesIO(b"\x93NUMPY\x01\x00" + size + head + data)


def written(*arrays, write=save, **named):
    file = io.BytesIO()
    write(file, *arrays, **named)
    file.seek(0)
    return file


ARRAYS = [
    np.arange(12.0).reshape(3, 4),
    np.asfortranarray(np.arange(6).reshape(2, 3)),
    np.array(5),
    np.zeros((0, 3), "i2"),
    np.array(["ab", "c"]),
    np.array([(1, 2.5)], dtype=[("x", "<i4"), ("y", ">f8", (2,))]),
    np.array(["2026-01-01"], "M8[D]"),
]


@pytest.mark.parametrize("array", ARRAYS, ids=lambda array: str(array.dtype)[:9])
def test_file_is_numpys_own_and_gives_the_array_back(array):
    file = written(array)
    theirs = np.load(io.BytesIO(file.getvalue()), allow_pickle=False)
    ours = load(file)
    assert (ours == array).all()
    assert (ours.dtype, ours.shape) == (array.dtype, array.shape)
    assert theirs.tobytes() == ours.tobytes()


def test_several_arrays_lie_one_after_another():
    file = io.BytesIO()
    for array in ARRAYS:
        save(file, array)
    file.seek(0)
    assert [load(file).shape for _ in ARRAYS] == [array.shape for array in ARRAYS]
    with pytest.raises(ValueError, match="no array"):
        load(file)


@pytest.mark.parametrize("write", [savez, savez_compressed])
def test_archive_is_numpys_own_and_the_same_at_every_host(write):
    file = written(ARRAYS[0], write=write, x=ARRAYS[1])
    assert file.getvalue() == written(ARRAYS[0], write=write, x=ARRAYS[1]).getvalue()
    with np.load(io.BytesIO(file.getvalue())) as theirs, load(file) as ours:
        assert sorted(ours.files) == sorted(theirs.files) == ["arr_0", "x"]
        assert (ours["x"] == theirs["x"]).all()
        assert ours["arr_0.npy"] is not ours["arr_0"]
        assert ours.get("z") is None


def test_nothing_is_made_for_bytes_that_are_not_there():
    file = made(f"({TERABYTES},)", data=b"x" * 64)
    with pytest.raises(ValueError, match="bytes are missing"):
        load(file)
    file.seek(0)
    with pytest.raises(MemoryError):  # the control: numpy makes the array first
        np.load(made(f"({TERABYTES * 2**10},)", data=b"x" * 64))


@pytest.mark.parametrize(
    "descr", ["'|O'", "[('a', '|O')]", "[('a', [('b', '|O')], (2,))]"]
)
def test_pickled_objects_are_refused_however_deep(descr):
    with pytest.raises(ValueError, match="need a pickle"):
        load(made("()", descr, data=PICKLE))


def test_pickles_are_refused_where_asked_for():
    file = made("()", "'|O'", data=PICKLE)
    assert str(np.load(io.BytesIO(file.getvalue()), allow_pickle=True)) == "REACHED"
    for call in (load, lambda file, **named: save(file, np.zeros(1), **named)):
        with pytest.raises(GuardError):
            call(file, allow_pickle=True)
    with pytest.raises(ValueError, match="this holds no array"):
        load(io.BytesIO(pickle.dumps([1])))


@pytest.mark.parametrize(
    "array", [np.array([None]), np.array(["a"], np.dtypes.StringDType())], ids=str
)
def test_objects_and_packed_strings_are_not_written(array):
    with pytest.raises(ValueError, match="need a pickle"):
        written(array)


class Lying(io.BytesIO):
    """A file whose class is the task's own."""


@pytest.mark.parametrize("file", ["a.npy", b"a", Lying(), io.StringIO(), 3])
def test_only_bytes_in_memory_are_files(file):
    for call in (load, lambda file: save(file, np.zeros(1)), savez):
        with pytest.raises(FileNotFoundError):
            call(file)


@pytest.mark.parametrize("shape", ["(-1,)", "(True,)", "(2.0,)", "3", "('a',)"])
def test_header_without_a_shape_is_refused(shape):
    with pytest.raises(ValueError, match=r"shape|missing"):
        load(made(shape, data=b"x" * 64))


def test_member_that_says_more_than_it_holds_is_refused():
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("a.npy", made(f"({TERABYTES},)", data=b"0" * 2**20).getvalue())
    with pytest.raises(ValueError, match="bytes are missing"):
        load(io.BytesIO(out.getvalue()))


@pytest.mark.parametrize("write", [np.savez, np.savez_compressed])
def test_archive_of_numpy_itself_is_read(write):
    found = load(written(ARRAYS[0], write=write, x=ARRAYS[1]))
    assert [found[name].tolist() for name in found] == [
        ARRAYS[1].tolist(),
        ARRAYS[0].tolist(),
    ]


@pytest.mark.parametrize("method", [zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED])
def test_archive_of_zipfile_itself_is_read(method):
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w", method) as archive:
        archive.writestr("a.npy", written(ARRAYS[0]).getvalue())
    assert (load(io.BytesIO(out.getvalue()))["a"] == ARRAYS[0]).all()


def test_member_is_unpacked_to_its_announced_size_at_most():
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("a.npy", bytes(2**24))
    bomb = out.getvalue().replace((2**24).to_bytes(4, "little"), b"\7\0\0\0")
    with pytest.raises(ValueError, match="damaged"):
        load(io.BytesIO(bomb))


def test_other_packers_are_refused():
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w", zipfile.ZIP_LZMA) as archive:
        archive.writestr("a.npy", written(ARRAYS[0]).getvalue())
    with pytest.raises(ValueError, match="not read here"):
        load(io.BytesIO(out.getvalue()))


@given(st.binary(max_size=200), st.integers(0, 400), st.sampled_from([b"", b"PK\3\4"]))
def test_any_bytes_end_in_an_array_or_a_value_error(noise, place, head):
    good = (
        written(ARRAYS[0], write=savez).getvalue()
        if head
        else written(ARRAYS[0]).getvalue()
    )
    hostile = good[:place] + noise + good[place + len(noise) :]
    try:
        load(io.BytesIO(hostile))
    except (ValueError, MemoryError):
        pass
