import msgspec
import pytest

from stoilo.audit.format.facts import OutcomeRecord
from stoilo.audit.format.records import task_commitment
from stoilo.core.digests import content_digest
from stoilo.web.archive import look
from stoilo.web.timeline import read_timeline
from tests.support.archive import ORIGIN, ArchiveWriter

SOURCE = b"def task(kwargs):\n    return 1\n"
HEX = "ab" * 32


@pytest.fixture
def writer(tmp_path):
    with ArchiveWriter(tmp_path / "data") as archive:
        yield archive


def tell(writer, task_id="t"):
    with look(writer.data) as view:
        return read_timeline(view, task_commitment(task_id))


def test_task_that_the_log_does_not_name_has_no_story(writer):
    writer.admit("t", SOURCE)
    assert tell(writer, "other") is None


def test_attempt_is_told_with_its_admission(writer):
    record = writer.admit("t", SOURCE)
    (attempt,) = tell(writer).attempts
    assert attempt.admission.index == record.admission
    assert (attempt.fault, attempt.denials) == ("", ())


def test_newest_attempt_comes_last_whatever_its_place(writer):
    writer.admit("t", SOURCE, attempt=2)
    writer.admit("t", SOURCE, attempt=1)
    assert [one.record.attempt for one in tell(writer).attempts] == [1, 2]


@pytest.mark.parametrize("fields", [{"admission_leaf": HEX}, {"admission": 999}])
def test_record_that_does_not_fit_its_admission_is_a_fault(writer, fields):
    writer.admit("t", SOURCE, **fields)
    assert tell(writer).attempts[0].fault


def test_outcome_is_the_tasks_own(writer):
    record = writer.admit("t", SOURCE)
    named = {"task": record.task, "attempt": 1, "admission": 0, "result": HEX}
    writer.add(OutcomeRecord(ORIGIN, writer.now, **named, state="succeeded", code=""))
    assert tell(writer).outcome.state == "succeeded"


@pytest.mark.parametrize(
    ("fields", "what"),
    [
        ({"epochs": (1,)}, "every admission of epoch 1"),
        ({"min_epoch": 2}, "every admission of epoch 1"),
        ({"flavors": ("cd" * 32,)}, "its flavor"),
        ({"digests": ("ef" * 32,)}, "the policy that admitted it"),
        ({"digests": (content_digest(SOURCE),)}, "its source"),
        ({"digests": ("12" * 32,)}, "its researcher"),
    ],
)
@pytest.mark.parametrize("issuer", ["online", "offline"])
def test_revocation_of_any_part_denies_the_attempt(writer, fields, what, issuer):
    writer.admit(
        "t", SOURCE, flavor="cd" * 32, policy_digest="ef" * 32, submitter="12" * 32
    )
    place = writer.revoke(1, issuer=issuer, **fields)
    (denial,) = tell(writer).attempts[0].denials
    assert (denial.what, denial.entry.index) == (what, place)


def test_only_the_newest_statement_of_an_issuer_counts(writer):
    writer.admit("t", SOURCE)
    writer.revoke(1, epochs=(1,))
    writer.revoke(2)
    assert tell(writer).attempts[0].denials == ()


def test_online_statement_takes_nothing_from_the_offline_one(writer):
    writer.admit("t", SOURCE)
    writer.revoke(1, epochs=(1,), issuer="offline")
    writer.revoke(2)
    assert len(tell(writer).attempts[0].denials) == 1


def test_withdrawn_admission_stays_in_the_story(writer):
    writer.admit("t", SOURCE, state="withdrawn")
    assert tell(writer).attempts[0].record.state == "withdrawn"


def test_story_is_told_under_one_checkpoint(writer):
    writer.admit("t", SOURCE)
    with look(writer.data) as view:
        writer.admit("t", SOURCE, attempt=2)
        timeline = read_timeline(view, task_commitment("t"))
    assert len(timeline.attempts) == 1
    assert msgspec.structs.asdict(timeline.attempts[0].record)["attempt"] == 1
