import contextlib
import shutil
import sqlite3
from pathlib import Path

import pytest

from stoilo.audit.format.facts import OutcomeRecord
from stoilo.audit.format.proof import LeafKind, check_proof, parse_proof
from stoilo.audit.read.reader import open_log
from stoilo.core.errors import TrustError, UsageError, WaitError
from tests.support.auditlog import SampleLog
from tests.support.faulty_log import LogKey


def test_every_entry_is_proven_and_carries_its_leaf(sample: SampleLog) -> None:
    log = open_log(sample.data_dir, sample.policy)
    assert not log.own_policy
    for index in range(log.size):
        entry = log.entry(index)
        assert check_proof(entry.proof, entry.data, sample.policy).index == index
        assert parse_proof(entry.proof).extra == entry.data


def test_entry_has_the_record_that_its_leaf_names(sample: SampleLog) -> None:
    log = open_log(sample.data_dir)
    assert log.own_policy
    first = sample.admissions[0]
    assert log.entry(first).record is None
    outcome = log.entry(first + 2)
    assert outcome.leaf is not None
    assert outcome.leaf.kind is LeafKind.RESULT
    assert isinstance(outcome.record, OutcomeRecord)
    assert outcome.record.admission == first


def test_leaf_of_another_format_is_shown_as_bytes(sample: SampleLog) -> None:
    entry = open_log(sample.data_dir).entry(0)
    assert (entry.leaf, entry.record, entry.data) == (None, None, b"plain 0")


@pytest.mark.parametrize("index", [-1, 313, 10**17])
def test_entry_past_the_checkpoint_is_not_there_yet(
    sample: SampleLog, index: int
) -> None:
    with pytest.raises(WaitError, match="STO-L056"):
        open_log(sample.data_dir).entry(index)


def test_log_that_the_policy_does_not_trust_is_refused(sample: SampleLog) -> None:
    with pytest.raises(TrustError, match="STO-L011"):
        open_log(sample.data_dir, LogKey("log.test/t", b"\4" * 32).policy)


def test_place_without_a_checkpoint_is_no_log(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="STO-L001"):
        open_log(tmp_path)


def test_changed_record_is_not_shown(sample: SampleLog, tmp_path: Path) -> None:
    shutil.copytree(sample.data_dir / "audit", tmp_path / "audit")
    outcome = sample.admissions[0] + 2
    open_log(tmp_path / "audit/log").entry(outcome)  # control
    with contextlib.closing(sqlite3.connect(tmp_path / "audit/side.sqlite")) as side:
        side.execute("UPDATE object SET data = replace(data, 'succeeded', 'cancelled')")
        side.commit()
    with pytest.raises(TrustError, match="STO-L141"):
        open_log(tmp_path / "audit/log").entry(outcome)


def test_changed_leaf_is_not_proven(sample: SampleLog, tmp_path: Path) -> None:
    copy = shutil.copytree(sample.data_dir / "audit/log", tmp_path / "log")
    bundle = copy / f"tile/entries/001.p/{sample.size - 256}"
    bundle.write_bytes(bundle.read_bytes().replace(b"plain 299", b"plain 290"))
    log = open_log(copy, sample.policy)
    log.entry(298)  # control: its neighbour is sound
    with pytest.raises(TrustError, match="STO-L020"):
        log.entry(299)
