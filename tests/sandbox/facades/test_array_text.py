import io

import numpy as np
import pytest

from stoilo.sandbox.facades.array_files import TEXT_FUNCTIONS

TEXT = "1 2\n3 4\n"
FUNCTIONS = TEXT_FUNCTIONS


class Named(str):
    __slots__ = ()

    def __iter__(self):
        return iter(["1 2"])


class Path:
    def __fspath__(self):
        return "/etc/hostname"


class Reader:
    def read(self, *_size):
        return TEXT

    def __iter__(self):
        return iter(TEXT.splitlines())


@pytest.mark.parametrize("name", ["loadtxt", "genfromtxt", "savetxt", "fromregex"])
@pytest.mark.parametrize(
    "path",
    ["/etc/hostname", b"/etc/hostname", Named("/etc/hostname"), Path()],
    ids=type,
)
def test_path_in_any_form_opens_nothing(name, path):
    more = {"savetxt": (np.ones(2),), "fromregex": ("(.)", [("a", "U1")])}
    with pytest.raises(FileNotFoundError):
        FUNCTIONS[name](path, *more.get(name, ()))


@pytest.mark.parametrize(
    "source",
    [io.StringIO(TEXT), io.BytesIO(TEXT.encode()), TEXT.splitlines(), Reader()],
    ids=["text", "bytes", "lines", "own"],
)
def test_lines_in_memory_are_read(source):
    assert FUNCTIONS["loadtxt"](source).tolist() == [[1, 2], [3, 4]]


def test_table_is_written_to_memory_and_read_back():
    out = io.StringIO()
    FUNCTIONS["savetxt"](out, np.eye(2), fmt="%g")
    assert out.getvalue() == "1 0\n0 1\n"
    found = FUNCTIONS["genfromtxt"](
        io.StringIO("a,b\n1,2\n"), delimiter=",", names=True
    )
    assert found.dtype.names == ("a", "b")
