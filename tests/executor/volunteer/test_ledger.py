from __future__ import annotations

import os

import msgspec
import pytest

from stoilo.core.boinc.messages import FileInfo
from stoilo.core.errors import InternalError, UsageError
from stoilo.executor.volunteer.ledger import (
    FileRecord,
    Ledger,
    Phase,
    ResultRecord,
    follow_project,
    mark_sticky,
)

URL = "http://127.0.0.1:1/"


def record(name="w_1_0", deadline=10, files=()):
    return ResultRecord(name, "w_1", "pure", deadline, files, "up", f"{URL}up", 1000)


def needs(name):
    return (FileRecord("arguments", FileInfo(name, URL, 1, "0" * 32)),)


@pytest.fixture
def ledger(tmp_path):
    made = Ledger(tmp_path, URL)
    yield made
    made.close()


def reopened(ledger, tmp_path):
    ledger.close()
    return Ledger(tmp_path, URL)


def test_identity_and_copies_survive_a_restart(ledger, tmp_path):
    cpid = ledger.host.cpid
    ledger.save_host(msgspec.structs.replace(ledger.host, host_id=5, rpc_seqno=9))
    ledger.add(record())
    again = reopened(ledger, tmp_path)
    assert (again.host.cpid, again.host.host_id, again.host.rpc_seqno) == (cpid, 5, 9)
    assert again.copies() == (record(),)
    again.close()


def test_known_copy_is_not_set_back(ledger):
    ledger.add(record())
    ledger.store_result(record(), b"data")
    ledger.add(record())
    assert ledger.find("w_1_0").phase is Phase.FINISHED


def test_result_written_before_its_phase_counts_as_finished(ledger, tmp_path):
    ledger.add(record())
    ledger.result_path("w_1_0").write_bytes(b"complete")  # killed before the next step
    again = reopened(ledger, tmp_path)
    assert again.find("w_1_0").phase is Phase.FINISHED
    again.close()


def test_half_written_files_of_a_crash_are_ignored(ledger, tmp_path):
    ledger.add(record())
    (tmp_path / "copies" / "w_1_0" / "result.part").write_bytes(b"half")
    (tmp_path / "new-abc").mkdir()
    (tmp_path / "old-abc").mkdir()
    again = reopened(ledger, tmp_path)
    assert again.find("w_1_0").phase is Phase.ASSIGNED
    assert not list(tmp_path.glob("new-*")) + list(tmp_path.glob("old-*"))
    again.close()


def test_earliest_deadline_comes_first(ledger):
    for name, deadline in (("a", 30), ("b", 10), ("c", 20)):
        ledger.add(record(name, deadline))
    assert [copy.result for copy in ledger.copies()] == ["b", "c", "a"]


@pytest.mark.usefixtures("ledger")
def test_second_process_is_kept_out(tmp_path):
    with pytest.raises(UsageError, match="STO-X007"):
        Ledger(tmp_path, URL)


def test_directory_of_another_project_is_refused(ledger, tmp_path):
    ledger.close()
    with pytest.raises(UsageError, match="STO-X007"):
        Ledger(tmp_path, "http://127.0.0.1:2/")


def test_directory_follows_its_project_when_asked_to(ledger, tmp_path):
    old = ledger.host
    ledger.add(
        msgspec.structs.replace(record(), upload_url=f"{old.project}upload/token")
    )
    ledger.close()
    follow_project(tmp_path, "http://moved.example/")
    moved = Ledger(tmp_path, "http://moved.example/")
    assert moved.host.cpid == old.cpid
    assert moved.find("w_1_0").upload_url == "http://moved.example/upload/token"
    moved.close()


def test_damaged_state_is_our_error(ledger, tmp_path):
    ledger.close()
    (tmp_path / "host.json").write_bytes(b"{")
    with pytest.raises(InternalError, match="STO-X008"):
        Ledger(tmp_path, URL)


def test_disk_that_refuses_is_our_error(ledger, tmp_path):
    ledger.add(record())
    folder = tmp_path / "copies" / "w_1_0"
    (folder / "copy.json").unlink()
    folder.rmdir()
    with pytest.raises(InternalError, match="STO-X008"):
        ledger.save(record())


def test_files_go_when_idle_and_sticky_ones_beyond_the_cap(ledger):
    for name in ("needed", "coming.part", "idle", "idle.part", "kept", "old"):
        (ledger.files / name).write_bytes(b"x" * 100)
    for name, age in (("kept", 2_000_000_000), ("old", 1_000_000_000)):
        mark_sticky(ledger.files / name)
        os.utime(ledger.files / name, (age, age))
    ledger.add(record(files=needs("needed") + needs("coming")))
    ledger.trim_files(cap_bytes=150)
    assert {path.name for path in ledger.files.iterdir()} == {
        "needed",
        "coming.part",
        "kept",
    }
