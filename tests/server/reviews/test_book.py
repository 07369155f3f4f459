"""The review queue among stand-ins: who waits, who goes on, and every way it ends."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path

import msgspec
import pytest

from stoilo.audit.format.facts import Record, ReviewRecord, WorkunitRecord
from stoilo.audit.format.proof import parse_leaf
from stoilo.audit.format.records import parse_record, task_commitment
from stoilo.audit.log.side import ObjectKind
from stoilo.core.digests import content_digest
from stoilo.core.errors import (
    DeniedError,
    PolicyRefusal,
    StoiloError,
    TrustError,
    UsageError,
)
from stoilo.core.signatures import PrivateKey
from stoilo.core.types import RunLimits, TaskState
from stoilo.executor.verifier.statements import (
    ANY_ARGUMENTS,
    MAX_REVIEW_BYTES,
)
from stoilo.executor.verifier.targets import Reviewer
from stoilo.server.admission import tokens
from stoilo.server.db import rows
from stoilo.server.log.public_records import submitter_commitment
from stoilo.server.reviews.book import WAIT_S
from tests.support.reviews import DAY_S, NO_REVIEW, Desk, make_desk


@pytest.fixture(name="make_desk")
def desk_maker(tmp_path: Path) -> Callable[..., Desk]:
    return partial(make_desk, tmp_path)


@pytest.fixture
def desk(make_desk) -> Desk:
    return make_desk()


def code_of(call: Callable[[], object]) -> str:
    with pytest.raises(StoiloError) as caught:
        call()
    return caught.value.code


def test_task_parks_before_anything_is_fixed_or_logged(desk: Desk) -> None:
    task_id = desk.submit()
    answer = desk.bench.poll(task_id)
    assert (answer.state, answer.code) == ("waiting_review", "STO-R022")
    assert "reviewer" in answer.explanation
    assert desk.bench.leaves() == []
    assert desk.bench.engine.specs == {}


def test_level_without_the_rule_does_not_park(make_desk) -> None:
    """The negative control."""
    desk = make_desk(msgspec.structs.replace(NO_REVIEW, digest="1" * 64))
    assert desk.state(desk.submit()) == "running"


def test_signed_task_is_admitted_with_the_review(desk: Desk) -> None:
    task_id = desk.submit()
    assert desk.hand_in(task_id) == 1
    assert desk.state(task_id) == "running"
    statement = desk.statement(task_id)
    assert len(statement.reviewers) == 1
    assert f"{task_id}_1" in desk.bench.engine.specs


def test_admission_ends_when_its_review_ends(desk: Desk) -> None:
    task_id = desk.submit()
    end = desk.bench.clock() + DAY_S
    desk.hand_in(task_id, not_after=end)
    assert desk.statement(task_id).not_after == end


def test_next_attempt_waits_for_another_review(desk: Desk) -> None:
    task_id = desk.submit()
    desk.hand_in(task_id, not_after=desk.bench.clock() + DAY_S)
    desk.bench.clock.now += DAY_S
    with desk.bench.store.read() as connection:
        attempt = rows.find_attempt(connection, task_id, 1)
    desk.bench.server.pipeline.attempts.retry(desk.task(task_id), attempt)
    desk.run()
    assert desk.state(task_id) == "waiting_review"
    assert desk.hand_in(task_id) == 1
    assert desk.statement(task_id, 2).reviewers


def test_two_reviewers_stand_in_one_statement(desk: Desk) -> None:
    end = desk.bench.clock() + 30 * DAY_S
    first = desk.submit("k1")
    desk.hand_in(first, arguments=ANY_ARGUMENTS, not_after=end)
    second = desk.submit("k2", x=2)
    assert len(desk.statement(second).reviewers) == 1
    book, now = desk.bench.server.review_desk._book, desk.bench.clock()
    text = desk.sign(first, by=1, arguments=ANY_ARGUMENTS, not_after=end)
    book.add(book.open(text), text, desk.owner("b").account_id, now)
    assert len(desk.statement(desk.submit("k3", x=3)).reviewers) == 2


@pytest.mark.parametrize(
    ("changes", "code"),
    [
        ({"level": "numeric"}, "STO-R023"),
        ({"task_module": "0" * 64}, "STO-R023"),
        ({"validator_module": "0" * 64}, "STO-R023"),
        ({"flavor": "0" * 64}, "STO-R023"),
        ({"arguments": "0" * 64}, "STO-R023"),
        ({"limits": RunLimits(cpu_s=1)}, "STO-R023"),
        ({"not_after": 1}, "STO-R023"),
        ({"not_after": 1_700_000_010}, "STO-R023"),
    ],
)
def test_review_that_does_not_fit_releases_nothing(desk: Desk, changes, code) -> None:
    task_id = desk.submit()
    assert code_of(lambda: desk.hand_in(task_id, **changes)) == code
    assert desk.state(task_id) == "waiting_review"


@pytest.mark.parametrize(
    "text", [b"", b"{}", b"\xff", b"[" * 5000, b"x" * (MAX_REVIEW_BYTES + 1)]
)
def test_bytes_that_are_no_review_are_refused(desk: Desk, text: bytes) -> None:
    task_id = desk.submit()
    assert code_of(lambda: desk.hand_in(task_id, text)) == "STO-R023"


def test_unknown_key_is_refused(desk: Desk) -> None:
    task_id = desk.submit()
    desk.keys[0] = PrivateKey.generate()
    assert code_of(lambda: desk.hand_in(task_id)) == "STO-R023"


def test_own_account_cannot_review(desk: Desk) -> None:
    task_id = desk.submit()
    assert code_of(lambda: desk.hand_in(task_id, who="ada")) == "STO-R025"


def test_key_of_the_submitters_other_account_cannot_review(desk: Desk) -> None:
    """The release lists a reviewer's own accounts; another login does not help."""
    task_id = desk.submit()
    ada = desk.owner("ada", tokens.Role.RESEARCHER)
    own = frozenset({submitter_commitment(ada.salt)})
    desk.named[0] = Reviewer(desk.keys[0].public, "a", own)
    assert code_of(lambda: desk.hand_in(task_id, who="ann")) == "STO-R025"


def test_stored_review_of_anothers_task_does_not_admit_ones_own(desk: Desk) -> None:
    """`any` reaches later tasks, but never those of the reviewer himself."""
    first = desk.submit()
    desk.hand_in(first, arguments=ANY_ARGUMENTS)
    ann = desk.owner("ann", tokens.Role.RESEARCHER)
    with desk.bench.store.write() as connection:
        now = desk.bench.clock()
        token = tokens.issue_token(connection, ann.name, tokens.Role.RESEARCHER, now)
    desk.bench.token, others = token, desk.bench.token
    assert desk.state(desk.submit("mine", x=5)) == "waiting_review"
    desk.bench.token = others  # the negative control
    assert desk.state(desk.submit("k2", x=5)) == "running"


def test_withdrawn_reviewer_parks_what_he_signed(desk: Desk) -> None:
    first = desk.submit()
    desk.hand_in(first, arguments=ANY_ARGUMENTS)
    desk.named.clear()
    assert desk.state(desk.submit("k2", x=2)) == "waiting_review"


def test_review_that_the_signer_refuses_parks_the_task_again(desk: Desk) -> None:
    """The reviewer was withdrawn between sealing and signing."""
    task_id = desk.submit()
    desk.bench.signer.fail = TrustError("STO-A055", "not by a known reviewer")
    desk.hand_in(task_id)
    desk.named.clear()
    desk.bench.signer.fail = None
    desk.run()
    assert desk.state(task_id) == "waiting_review"
    assert desk.bench.poll(task_id).attempt == 2


def test_withdrawn_reviewers_running_task_is_taken_back(desk: Desk) -> None:
    task_id, other = desk.submit("k1"), desk.submit("k2", x=2)
    desk.hand_in(task_id)
    desk.hand_in(other, by=1)
    assert desk.state(task_id) == "running"
    del desk.named[0]
    desk.run()
    desk.run()
    assert desk.state(task_id) == "waiting_review"
    assert desk.bench.engine.ended[f"{task_id}_1"].value == "cancelled"
    assert desk.state(other) == "running"
    assert desk.hand_in(task_id, by=1) == 1
    assert desk.state(task_id) == "running"


def test_policy_without_reviews_releases_who_waits(desk: Desk, make_desk) -> None:
    task_id = desk.submit()
    later = make_desk(msgspec.structs.replace(NO_REVIEW, digest="1" * 64))
    later.run()
    later.run()
    assert later.task(task_id).state is TaskState.RUNNING


def test_restart_keeps_who_waits(desk: Desk, make_desk) -> None:
    task_id = desk.submit()
    again = make_desk()
    again.run()
    assert again.task(task_id).state is TaskState.WAITING_REVIEW


def test_task_that_nobody_signs_expires_once(desk: Desk) -> None:
    task_id = desk.submit()
    desk.bench.clock.now += WAIT_S - 1
    desk.run()
    assert desk.state(task_id) == "waiting_review"
    desk.bench.clock.now += 1
    desk.run()
    answer = desk.bench.poll(task_id)
    assert (answer.state, answer.code) == ("expired", "STO-R060")
    desk.run()
    with desk.bench.store.read() as connection:
        assert rows.find_attempt(connection, task_id, 1).state == "closed"
    assert code_of(lambda: desk.hand_in(task_id)) == "STO-R027"


def test_refused_task_ends_with_the_reason(desk: Desk) -> None:
    task_id = desk.submit()
    review = desk.bench.server.review_desk
    assert review.refuse(desk.owner("ann"), task_id, "no\x07") is TaskState.SYSTEM_ERROR
    answer = desk.bench.poll(task_id)
    assert (answer.code, answer.error_text) == (
        "STO-R064",
        "a reviewer refused it: no\\x07",
    )
    again = lambda: review.refuse(desk.owner("ann"), task_id, "")  # noqa: E731
    assert code_of(again) == "STO-R027"


def test_own_task_cannot_be_refused_by_its_submitter_as_reviewer(desk: Desk) -> None:
    task_id = desk.submit()
    review = desk.bench.server.review_desk
    with pytest.raises(PolicyRefusal, match="STO-R025"):
        review.refuse(desk.owner("ada"), task_id, "")


def test_cancelled_task_waits_no_more(desk: Desk) -> None:
    task_id = desk.submit()
    with desk.bench.store.read() as connection:
        owner = tokens.find_owner(connection, desk.bench.token, desk.bench.clock())
    assert desk.bench.server.desk.cancel(owner, task_id) is TaskState.CANCELLED
    desk.run()
    assert desk.bench.server.reviews.waiting() == []


def test_reviewer_sees_what_waits_and_nothing_else(desk: Desk) -> None:
    waiting, running = desk.submit("k1"), desk.submit("k2", x=2)
    desk.hand_in(running)
    review, ann = desk.bench.server.review_desk, desk.owner("ann")
    listed = review.list_waiting(ann, 0)
    assert [row.task_id for row in listed.tasks] == [waiting]
    assert not listed.tasks[0].own
    assert review.list_waiting(desk.owner("ada"), 0).tasks[0].own
    shown = review.get(waiting)
    assert shown.task_module == b"def task(kwargs):\n    return kwargs['x'] + 1\n"
    assert '"ada"' not in str(shown) + str(listed)
    for other in (running, "nothing", ""):
        with pytest.raises(UsageError, match="STO-R027"):
            review.get(other)


@pytest.mark.parametrize("role", [one for one in tokens.Role if one != "reviewer"])
def test_only_reviewers_may_call(desk: Desk, role: tokens.Role) -> None:
    with pytest.raises(DeniedError, match="STO-R002"):
        tokens.check_reviewer(desk.owner("x", role), "ListReviews")
    tokens.check_reviewer(desk.owner("x"), "ListReviews")
    with pytest.raises(DeniedError, match="STO-R002"):
        tokens.check_permission(desk.owner("x"), "CreateTask")


def test_parked_tasks_count_as_unfinished(desk: Desk) -> None:
    desk.submit("k1")
    desk.submit("k2", x=2)
    with desk.bench.store.read() as connection:
        owner = tokens.find_owner(connection, desk.bench.token, desk.bench.clock())
        assert rows.count_tasks(connection, owner.account_id) == 2


def test_same_bytes_handed_in_twice_are_one_review(desk: Desk) -> None:
    task_id = desk.submit()
    text = desk.sign(task_id, arguments=ANY_ARGUMENTS)
    desk.hand_in(task_id, text)
    other = desk.submit("k2", x=2)
    assert len(desk.statement(other).reviewers) == 1
    assert code_of(lambda: desk.hand_in(other, text)) == "STO-R027"


def records(desk: Desk) -> list[Record]:
    desk.run()
    found = [
        desk.bench.side.get(ObjectKind.RECORD, leaf.digest)
        for leaf in map(parse_leaf, desk.bench.log.leaves)
    ]
    return [parse_record(text) for text in found if text is not None]


def test_review_is_logged_and_the_admission_names_it(desk: Desk) -> None:
    desk.hand_in(desk.submit())
    (review,) = (one for one in records(desk) if isinstance(one, ReviewRecord))
    (workunit,) = (one for one in records(desk) if isinstance(one, WorkunitRecord))
    assert review.reviewer == content_digest(desk.keys[0].public.raw)
    assert (review.decision, review.level) == ("signed", "pure")
    assert workunit.reviews == (review.review,)


def test_same_review_handed_in_twice_is_logged_once(desk: Desk) -> None:
    task_id, other = desk.submit("k1"), desk.submit("k2", x=2)
    text = desk.sign(task_id, arguments=ANY_ARGUMENTS)
    desk.hand_in(task_id, text)
    with pytest.raises(UsageError):
        desk.hand_in(other, text)  # the first one let it go on too
    assert sum(isinstance(one, ReviewRecord) for one in records(desk)) == 1


def test_refusal_is_logged_without_its_reason(desk: Desk) -> None:
    task_id = desk.submit()
    desk.bench.server.review_desk.refuse(desk.owner("ann"), task_id, "too secret")
    (review,) = (one for one in records(desk) if isinstance(one, ReviewRecord))
    assert (review.decision, review.task) == ("refused", task_commitment(task_id))
    assert not any(b"secret" in leaf for leaf in desk.bench.log.leaves)
