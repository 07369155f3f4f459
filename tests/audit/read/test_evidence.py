import pytest
from hypothesis import given
from hypothesis import strategies as st

from stoilo.audit.format.facts import WorkunitRecord
from stoilo.audit.format.proof import Proof, parse_proof, render_proof
from stoilo.audit.format.records import render_record
from stoilo.audit.read.reader import Entry, check_evidence, open_log
from stoilo.core.errors import TrustError, UsageError
from tests.support.auditlog import SAMPLE_SOURCE, SampleLog
from tests.support.faulty_log import LogKey


def workunit(sample: SampleLog, number: int = 0) -> Entry:
    return open_log(sample.data_dir).entry(sample.admissions[number] + 1)


def test_proof_record_and_source_fit_each_other(sample: SampleLog) -> None:
    entry = workunit(sample)
    found = check_evidence(
        entry.proof,
        sample.policy,
        record=render_record(entry.record),
        source=SAMPLE_SOURCE,
    )
    assert (found.index, found.data, found.leaf) == (
        entry.index,
        entry.data,
        entry.leaf,
    )
    assert isinstance(found.record, WorkunitRecord)
    assert found.source


def test_other_record_or_source_is_refused(sample: SampleLog) -> None:
    one, other = workunit(sample), workunit(sample, 1)
    with pytest.raises(TrustError, match="STO-L141"):
        check_evidence(one.proof, sample.policy, record=render_record(other.record))
    with pytest.raises(TrustError, match="STO-L141"):
        check_evidence(
            one.proof, sample.policy, record=render_record(one.record), source=b"else"
        )
    with pytest.raises(TrustError, match="STO-L141"):
        check_evidence(
            other.proof,
            sample.policy,
            record=render_record(other.record),
            source=SAMPLE_SOURCE,
        )


def test_leaf_in_the_proof_is_not_believed(sample: SampleLog) -> None:
    """`extra` is authenticated by nothing but the inclusion proof."""
    parsed = parse_proof(workunit(sample).proof)
    other = workunit(sample, 1).data
    forged = render_proof(Proof(parsed.index, parsed.path, parsed.checkpoint, other))
    with pytest.raises(TrustError, match="STO-L020"):
        check_evidence(forged, sample.policy)


def test_proof_without_a_leaf_needs_one(sample: SampleLog) -> None:
    entry = workunit(sample)
    parsed = parse_proof(entry.proof)
    bare = render_proof(Proof(parsed.index, parsed.path, parsed.checkpoint))
    with pytest.raises(UsageError, match="STO-U003"):
        check_evidence(bare, sample.policy)
    assert check_evidence(bare, sample.policy, leaf=entry.data).data == entry.data
    with pytest.raises(UsageError, match="STO-U003"):
        check_evidence(entry.proof, sample.policy, source=SAMPLE_SOURCE)


def test_record_of_a_foreign_leaf_is_refused(sample: SampleLog) -> None:
    entry = open_log(sample.data_dir).entry(3)
    assert check_evidence(entry.proof, sample.policy).leaf is None
    with pytest.raises(TrustError, match="STO-L010"):
        check_evidence(entry.proof, sample.policy, record=b"{}")


def test_other_key_is_refused(sample: SampleLog) -> None:
    with pytest.raises(TrustError, match="STO-L011"):
        check_evidence(workunit(sample).proof, LogKey("log.test/t", b"\4" * 32).policy)


@given(data=st.data())
def test_any_changed_byte_is_refused(sample: SampleLog, data: st.DataObject) -> None:
    proof = bytearray(workunit(sample).proof)
    proof[data.draw(st.integers(0, len(proof) - 1))] ^= data.draw(st.integers(1, 255))
    with pytest.raises((TrustError, UsageError)):
        check_evidence(bytes(proof), sample.policy)
