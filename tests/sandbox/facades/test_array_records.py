import io

import numpy as np
import pytest

from stoilo.sandbox.facades.arrays import RECARRAY, array


class Reader:
    def readinto(self, target):
        return target


@pytest.mark.parametrize("source", [b"x" * 16, bytearray(16), memoryview(b"x" * 16)])
@pytest.mark.parametrize("kind", ["O", [("a", "O")], "f8"])
def test_records_are_not_made_of_bytes(source, kind):
    with pytest.raises(TypeError, match="frombuffer"):
        array(source, dtype=kind, shape=2)


@pytest.mark.parametrize("source", [io.BytesIO(b"x" * 16), Reader(), None])
def test_records_are_not_read_from_files_nor_from_nothing(source):
    with pytest.raises(TypeError):
        array(source, dtype=[("a", "f8")], shape=2)


def test_records_of_data_are_numpys():
    rows = [(1, 2.0), (3, 4.0)]
    assert array(rows).tolist() == np.rec.array(rows).tolist()
    assert isinstance(array(rows), RECARRAY)


def test_raw_constructor_is_refused():
    with pytest.raises(TypeError):
        RECARRAY((3,), dtype=[("a", "f8")])
