"""SQLite files as files: header, structure and write-ahead log."""

import shutil
import sqlite3
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stoilo.audit.log.fsck_databases import check_database_file, check_write_ahead_log
from stoilo.audit.log.sqlite import connect

ROWS = 400


def make(path: Path) -> sqlite3.Connection:
    opened = connect(path)
    opened.execute("CREATE TABLE numbers (n INTEGER PRIMARY KEY, text TEXT) STRICT")
    for number in range(ROWS):
        opened.execute("INSERT INTO numbers VALUES (?, ?)", (number, "x" * 50))
    return opened


@pytest.fixture
def database(tmp_path: Path) -> Path:
    make(tmp_path / "one.sqlite").close()
    return tmp_path / "one.sqlite"


@pytest.fixture
def unclean(tmp_path: Path) -> Iterator[Path]:
    """Yield a database whose writer died: all is in the write-ahead log."""
    with closing(make(tmp_path / "open.sqlite")):
        for suffix in ("", "-wal"):
            source = tmp_path / f"open.sqlite{suffix}"
            shutil.copy(source, tmp_path / f"unclean.sqlite{suffix}")
        yield tmp_path / "unclean.sqlite"


def flip(path: Path, place: int) -> None:
    data = bytearray(path.read_bytes())
    data[place] ^= 1
    path.write_bytes(data)


def wal_of(path: Path) -> Path:
    return path.with_name(path.name + "-wal")


def test_whole_file_has_no_faults(database: Path) -> None:
    assert list(check_database_file(database)) == []


def test_empty_file_is_an_empty_database(tmp_path: Path) -> None:
    (tmp_path / "new.sqlite").touch()
    assert list(check_database_file(tmp_path / "new.sqlite")) == []


@pytest.mark.parametrize("field", [0, 16, 19, 21, 28, 47])
def test_flipped_header_field_that_counts_is_found(database: Path, field: int) -> None:
    flip(database, field)
    assert list(check_database_file(database))


def test_truncated_file_is_found(database: Path) -> None:
    data = database.read_bytes()
    database.write_bytes(data[:-4096])
    assert "malformed" in next(check_database_file(database)).message


def test_flipped_cell_pointer_names_its_page(database: Path) -> None:
    flip(database, 2 * 4096 + 8 + 3)
    assert {one.place for one in check_database_file(database)} == {"page 3"}


def test_whole_write_ahead_log_has_no_faults(unclean: Path) -> None:
    assert list(check_write_ahead_log(wal_of(unclean))) == []
    assert list(check_database_file(unclean)) == []


def test_flipped_frame_names_its_number(unclean: Path) -> None:
    flip(wal_of(unclean), 32 + 9 * (24 + 4096) + 1000)
    (fault,) = check_write_ahead_log(wal_of(unclean))
    assert fault.place == "frame 10"


def test_torn_end_of_a_write_ahead_log_is_no_fault(unclean: Path) -> None:
    """It was not acknowledged: the flush after it never came back."""
    data = wal_of(unclean).read_bytes()
    for cut in (1, 100, 4096, 4119):
        wal_of(unclean).write_bytes(data[:-cut])
        assert list(check_write_ahead_log(wal_of(unclean))) == []
    wal_of(unclean).write_bytes(data[:-100] + bytes(100))
    (torn,) = check_write_ahead_log(wal_of(unclean))
    assert not torn.is_damage


@pytest.mark.parametrize("place", [0, 5, 9, 17, 25, 31])
def test_flipped_header_of_a_write_ahead_log_is_found(
    unclean: Path, place: int
) -> None:
    flip(wal_of(unclean), place)
    (fault,) = check_write_ahead_log(wal_of(unclean))
    assert fault.place == "header"


@given(st.binary(max_size=300))
def test_any_bytes_end_in_a_list_of_faults(
    tmp_path_factory: pytest.TempPathFactory, data: bytes
) -> None:
    folder = tmp_path_factory.getbasetemp()
    (folder / "any.sqlite").write_bytes(data)
    for check in (check_database_file, check_write_ahead_log):
        assert all(one.message for one in check(folder / "any.sqlite"))
