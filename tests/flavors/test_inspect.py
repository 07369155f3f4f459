from __future__ import annotations

import marshal
import struct
import zipfile

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stoilo.core.errors import TrustError
from tests.support.pyinstaller import look_inside, read_module_names

ROWS = [("json", (1, 10, 20)), ("json.decoder", (0, 30, 40)), ("é", (0, 1, 2))]


def make_modules(table):
    return b"PYZ\0" + bytes(4) + struct.pack("!I", 12) + marshal.dumps(table)


def make_program(entries):
    body, table = b"", b""
    for kind, name, content in entries:
        raw = name.encode() + b"\0"
        raw += bytes(-(18 + len(raw)) % 16)
        head = (18 + len(raw), len(body), len(content), len(content), 0, kind)
        table += struct.pack("!IIIIBc", *head) + raw
        body += content
    length = len(body) + len(table) + 88
    cookie = b"MEI\014\013\012\013\016"
    fields = (length, len(body), len(table), 311, b"libpython3.11.so")
    return b"\x7fELF" + body + table + cookie + struct.pack("!IIII64s", *fields)


ENTRIES = [
    (b"m", "pyimod01_archive", b""),
    (b"m", "struct", b""),
    (b"s", "runtime_entry", b""),
    (b"o", "hash_seed=0", b""),
    (b"z", "PYZ.pyz", make_modules(ROWS)),
]


def make_tree(directory, entries):
    inner = directory / "_internal"
    (inner / "python3.11" / "lib-dynload").mkdir(parents=True)
    (inner / "numpy").mkdir()
    for path in (
        "python3.11/lib-dynload/_json.cpython-311-x86_64-linux-gnu.so",
        "numpy/core.abi3.so",
        "libz.so.1",
        "levels.toml",
    ):
        (inner / path).write_bytes(b"x")
    with zipfile.ZipFile(inner / "base_library.zip", "w") as file:
        file.writestr("encodings/__init__.pyc", b"")
        file.writestr("encodings/utf_8.pyc", b"")
    (directory / "stoilo-runtime").write_bytes(make_program(entries))
    return directory


def test_contents_are_read_from_the_built_files(tmp_path):
    inside = look_inside(make_tree(tmp_path, ENTRIES), "stoilo-runtime")
    assert inside.modules == (
        *("_json", "encodings", "encodings.utf_8", "json", "json.decoder"),
        *("numpy.core", "struct", "é"),
    )
    assert inside.libraries == ("libz",)
    assert inside.scripts == ("runtime_entry",)
    assert inside.options == ("hash_seed=0",)
    assert inside.files == ("levels.toml",)


@pytest.mark.parametrize("table", [ROWS, [list(row) for row in ROWS], ROWS * 300])
def test_table_of_modules_is_read_without_unmarshalling(table):
    assert read_module_names(make_modules(table)) == [row[0] for row in table]


@pytest.mark.parametrize(
    "table",
    [
        {"a": 1},
        "a",
        [1],
        [(1, 2)],
        [("a",), b"b"],
        [[[["a"]]]],
        compile("1", "", "eval"),
    ],
)
def test_table_in_another_form_is_refused(table):
    with pytest.raises(TrustError) as caught:
        read_module_names(make_modules(table))
    assert caught.value.code == "STO-F006"


@given(st.binary(max_size=200))
def test_any_table_ends_in_names_or_our_error(data):
    archive = b"PYZ\0" + bytes(4) + struct.pack("!I", 12) + data
    try:
        names = read_module_names(archive)
    except TrustError as error:
        assert error.code == "STO-F006"
    else:
        assert all(isinstance(name, str) for name in names)


@given(st.integers(0, 400), st.binary(max_size=8))
def test_any_changed_program_ends_in_contents_or_our_error(tmp_path_factory, at, junk):
    directory = make_tree(tmp_path_factory.mktemp("tree"), ENTRIES)
    program = directory / "stoilo-runtime"
    data = program.read_bytes()
    program.write_bytes(data[:at] + junk + data[at + len(junk) :])
    try:
        look_inside(directory, "stoilo-runtime")
    except TrustError as error:
        assert error.code == "STO-F006"
