import shutil
from pathlib import Path

import pytest

from stoilo.audit.format.facts import WorkunitRecord
from stoilo.audit.format.records import task_commitment
from stoilo.audit.read.reader import open_log
from stoilo.audit.read.search import explain_admission, find_entries, prove_leaf
from stoilo.core.errors import UsageError
from tests.support.auditlog import SampleLog


def without_databases(sample: SampleLog, folder: Path) -> Path:
    """The log and its side store as a server's reader has them: no labels."""
    shutil.copytree(sample.data_dir / "audit", folder / "public")
    (folder / "public/log.sqlite").unlink()
    return folder / "public/log"


@pytest.mark.parametrize("number", range(4))
def test_task_is_found_by_id_and_by_commitment(
    sample: SampleLog, tmp_path: Path, number: int
) -> None:
    task, first = sample.tasks[number], sample.admissions[number]
    expected = [first, first + 1, first + 2]
    log = open_log(sample.data_dir, sample.policy)
    public = open_log(without_databases(sample, tmp_path), sample.policy)
    assert find_entries(log, task) == expected
    assert find_entries(public, task) == expected
    assert find_entries(public, task_commitment(task)) == expected


def test_index_is_itself(sample: SampleLog) -> None:
    assert find_entries(open_log(sample.data_dir), "7") == [7]


@pytest.mark.parametrize("name", ["task-9", "0" * 64, "../x", ""])
def test_unknown_task_is_named(sample: SampleLog, tmp_path: Path, name: str) -> None:
    public = open_log(without_databases(sample, tmp_path), sample.policy)
    with pytest.raises(UsageError, match="STO-L023"):
        find_entries(public, name)


def test_proof_of_a_task_is_that_of_its_admission(
    sample: SampleLog, tmp_path: Path
) -> None:
    public = without_databases(sample, tmp_path)
    for place in (sample.data_dir, public):
        found = prove_leaf(place, "task-2", sample.policy)
        assert found.index == sample.admissions[2]


def test_admission_is_explained_by_its_workunit_record(sample: SampleLog) -> None:
    log = open_log(sample.data_dir)
    for index in sample.admissions:
        found = explain_admission(log, index, log.entry(index).data)
        assert found is not None
        place, record = found
        assert place == index + 1
        assert isinstance(record, WorkunitRecord)
    assert explain_admission(log, 1, log.entry(1).data) is None
    assert explain_admission(log, sample.admissions[0], b"another leaf") is None
