import os
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from stoilo.core.errors import InternalError, TrustError
from stoilo.executor.verifier.host_verifier import TIME_FILE, TimeMemory


def test_newest_time_survives_and_only_rises(tmp_path: Path) -> None:
    memory = TimeMemory(tmp_path / "own")
    seen = []
    for time in (None, 5, 3, 9, 0, 9):
        memory.learn(time)
        seen.append((memory.newest, TimeMemory(tmp_path / "own").newest))
    assert seen == [(0, 0), (5, 5), (5, 5), (9, 9), (9, 9), (9, 9)]


def test_two_processes_of_one_host_keep_the_newest(tmp_path: Path) -> None:
    pair = [TimeMemory(tmp_path), TimeMemory(tmp_path)]
    with ThreadPoolExecutor(4) as pool:
        list(pool.map(lambda n: pair[n % 2].learn(n), range(1, 60)))
    assert TimeMemory(tmp_path).newest == 59


@pytest.mark.parametrize(
    "text", [b"", b"stoilo-time/v1 05\n", b"stoilo-time/v1 -1\n", b"\xff" * 99]
)
def test_damaged_memory_fails_closed_and_names_its_file(
    tmp_path: Path, text: bytes
) -> None:
    (tmp_path / TIME_FILE).write_bytes(text)
    with pytest.raises(TrustError, match=r"STO-L118") as caught:
        TimeMemory(tmp_path)
    assert TIME_FILE in caught.value.message
    assert str(tmp_path) not in caught.value.message  # it is told to the project


def test_crash_before_the_rename_leaves_the_old_time(tmp_path: Path) -> None:
    TimeMemory(tmp_path).learn(7)
    (tmp_path / f".{TIME_FILE}.new").write_bytes(b"stoilo-time/v1 9")
    assert TimeMemory(tmp_path).newest == 7


def test_memory_that_cannot_be_written_is_not_believed(tmp_path: Path) -> None:
    memory = TimeMemory(tmp_path)
    (tmp_path / f".{TIME_FILE}.new").mkdir()  # where the next one would be written
    with pytest.raises(Exception, match="STO-X008"):
        memory.learn(5)
    os.rmdir(tmp_path / f".{TIME_FILE}.new")  # noqa: PTH106
    assert TimeMemory(tmp_path).newest == 0


def test_lock_that_cannot_be_taken_is_this_machines_trouble(tmp_path: Path) -> None:
    memory = TimeMemory(tmp_path)
    (tmp_path / "newest-time.lock").mkdir()
    with pytest.raises(InternalError) as caught:
        memory.learn(5)
    assert caught.value.code == "STO-X008"
    assert memory.newest == 0


def test_directory_that_cannot_be_made_is_this_machines_trouble(tmp_path: Path) -> None:
    (tmp_path / "own").write_bytes(b"")
    with pytest.raises(InternalError) as caught:
        TimeMemory(tmp_path / "own")
    assert caught.value.code == "STO-X008"
