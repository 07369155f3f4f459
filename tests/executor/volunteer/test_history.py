from __future__ import annotations

import pytest

from stoilo.core.boinc.messages import ResultState
from stoilo.executor.verifier.workunit import Disposition, ResultHeader
from stoilo.executor.volunteer import history
from stoilo.executor.volunteer.history import PastRun, note_run, read_history
from stoilo.executor.volunteer.ledger import Ledger, ResultRecord
from stoilo.executor.volunteer.task_run import _past_run

URL = "http://127.0.0.1:1/"
COPY = ResultRecord("w_1_0", "w_1", "pure", 10, (), "up", f"{URL}up", 1000)


def row(number: int) -> PastRun:
    return PastRun(number, f"task_{number}", "pure", "ok", function="square")


def test_rows_come_back_oldest_first_without_what_was_torn(tmp_path) -> None:
    for number in range(3):
        note_run(tmp_path, row(number))
    with (tmp_path / history.HISTORY_FILE).open("ab") as file:
        file.write(b'{"at": 4, "work\n[]\n\xff\n')
    note_run(tmp_path, row(5))
    assert [one.at for one in read_history(tmp_path)] == [0, 1, 2, 5]


def test_history_is_bounded_and_keeps_the_newest(tmp_path, monkeypatch) -> None:
    monkeypatch.setattr(history, "MAX_HISTORY_BYTES", 5000)
    monkeypatch.setattr(history, "MOST_PAST", 20)
    for number in range(500):
        note_run(tmp_path, row(number))
    assert (tmp_path / history.HISTORY_FILE).stat().st_size <= 5000
    assert [one.at for one in read_history(tmp_path)] == list(range(480, 500))


def test_disk_that_takes_no_row_ends_nothing(tmp_path) -> None:
    note_run(tmp_path / "nothing", row(1))
    assert read_history(tmp_path / "nothing") == []


def test_failures_are_rows_too(tmp_path) -> None:
    ledger = Ledger(tmp_path, URL)
    ledger.add(COPY)
    ledger.fail(COPY, ResultState.COMPUTE_ERROR, 195, "STO-S005")
    ledger.fail(COPY, ResultState.ABORTED, 203, "")
    ledger.close()
    found = [(one.outcome, one.code) for one in read_history(tmp_path)]
    assert found == [("failed", "STO-S005"), ("aborted", "")]


@pytest.mark.parametrize("disposition", list(Disposition))
@pytest.mark.parametrize("admission", [b"", b"{}", b"\xff" * 100])
def test_admission_that_says_nothing_leaves_the_names_empty(
    tmp_path, disposition, admission
) -> None:
    (tmp_path / "admission").write_bytes(admission)
    header = ResultHeader(
        "stoilo-result/1", "w_1_0", "w_1", disposition, code="STO-A001"
    )
    run = _past_run(COPY, header, {"admission": tmp_path / "admission"}, 7)
    assert run == PastRun(7, "w_1", "pure", disposition.value, "STO-A001")
