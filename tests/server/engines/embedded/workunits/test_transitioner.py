"""The rules by named cases; `test_replication` plays them against a reference model."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stoilo.core.types import Redundancy
from stoilo.server.engines.embedded.db.records import (
    Caller,
    Check,
    CheckVerdict,
    Close,
    Compare,
    Create,
    Drop,
    Expire,
    Finish,
    Judge,
    ReleaseClass,
    Result,
    Validity,
    WorkunitView,
)
from stoilo.server.engines.embedded.workunits.transitioner import (
    can_receive,
    deadline_of,
    may_issue,
    may_recheck,
    next_actions,
)
from stoilo.server.engines.embedded.workunits.validator import judge
from stoilo.server.engines.interface import OutcomeKind, ResultOutcome, ResultProgress
from stoilo.server.engines.workunits import Homogeneity

NOW = 1000
UNSENT, ON_HOST, OVER = (
    ResultProgress.UNSENT,
    ResultProgress.IN_PROGRESS,
    ResultProgress.OVER,
)


def view(*copies, redundancy=None, not_after=10**9):
    return WorkunitView(redundancy or Redundancy(), not_after, copies)


def done(name, validity=Validity.CHECKED, user=1):
    return Result(name, OVER, ResultOutcome.SUCCESS, validity, user, f"h{user}", NOW)


def failed(name, outcome=ResultOutcome.CLIENT_ERROR, user=1):
    return Result(name, OVER, outcome, Validity.INIT, user, f"h{user}", NOW)


def running(name, user=1, deadline=NOW + 50):
    return Result(name, ON_HOST, user_id=user, host_key=f"h{user}", deadline=deadline)


CASES = {
    "nothing yet: the target is created": ((), [Create(2)]),
    "on hosts before the deadline: wait": ((running("a"), running("b", 2)), []),
    "on a host past the deadline: expires": (
        (running("a", deadline=NOW - 1), running("b", 2)),
        [Expire("a")],
    ),
    "on a host at the deadline: still counts": (
        (running("a", deadline=NOW), running("b", 2)),
        [],
    ),
    "success: init validator first": (
        (done("a", Validity.INIT), running("b", 2)),
        [Check("a")],
    ),
    "one of quorum two: wait": ((done("a"), running("b", 2)), []),
    "quorum present: compare": ((done("a"), done("b", user=2)), [Judge(("a", "b"))]),
    "compared without quorum: one more": (
        (done("a", Validity.INCONCLUSIVE), done("b", Validity.INCONCLUSIVE, 2)),
        [Create(1)],
    ),
    "error: one more": ((failed("a"), running("b", 2)), [Create(1)]),
    "no reply: one more": (
        (failed("a", ResultOutcome.NO_REPLY), running("b", 2)),
        [Create(1)],
    ),
    "refusal: one more, not counted": (
        tuple(failed(f"r{i}", ResultOutcome.REFUSED, i) for i in range(8)),
        [Create(2)],
    ),
    "errors exceeded": (
        (failed("a"), failed("b", user=2), failed("c", user=3)),
        [Finish(OutcomeKind.TOO_MANY_ERRORS)],
    ),
    "total used up, one more needed": (
        tuple(done(f"d{i}", Validity.INCONCLUSIVE, i) for i in range(3)),
        [Finish(OutcomeKind.TOO_MANY_TOTAL)],
    ),
    "total used up, a quorum still possible: wait": (
        (failed("a"), done("b", user=2), running("c", 3)),
        [],
    ),
    "total used up, no quorum possible": (
        (failed("a"), failed("b", user=2), running("c", 3)),
        [Finish(OutcomeKind.TOO_MANY_TOTAL)],
    ),
    "silence and aborts are no errors": (
        (
            failed("a", ResultOutcome.NO_REPLY),
            failed("b", ResultOutcome.ABORTED, 2),
        ),
        [Create(2)],
    ),
    "aborts do not use up the total": (
        tuple(failed(f"a{i}", ResultOutcome.ABORTED, i) for i in range(10)),
        [Create(2)],
    ),
    "too much turned away": (
        tuple(failed(f"r{i}", ResultOutcome.REFUSED, i) for i in range(6))
        + tuple(failed(f"a{i}", ResultOutcome.ABORTED, i) for i in range(6, 11)),
        [Finish(OutcomeKind.TOO_MANY_REFUSALS)],
    ),
    "silence uses up the total": (
        tuple(failed(f"n{i}", ResultOutcome.NO_REPLY, i) for i in range(3)),
        [Finish(OutcomeKind.TOO_MANY_TOTAL)],
    ),
    "too many refusals": (
        tuple(failed(f"r{i}", ResultOutcome.REFUSED, i) for i in range(11)),
        [Finish(OutcomeKind.TOO_MANY_REFUSALS)],
    ),
    "a quorum wins over errors beside it": (
        (done("a"), done("b", user=2), *(failed(f"e{i}", user=3) for i in range(5))),
        [Judge(("a", "b"))],
    ),
}


@pytest.mark.parametrize("name", CASES)
def test_next_actions_by_case(name):
    copies, expected = CASES[name]
    limits = (
        replace(Redundancy(), target_results=1) if "at the deadline" in name else None
    )
    limits = replace(limits, min_quorum=1) if limits else None
    assert next_actions(view(*copies, redundancy=limits), NOW) == expected


def test_successes_beyond_the_limit_without_quorum_end_it():
    limits = Redundancy(max_success=2, max_total=9, max_error=2)
    copies = [done(f"d{i}", Validity.INCONCLUSIVE, i) for i in range(3)]
    expected = [Finish(OutcomeKind.TOO_MANY_SUCCESS)]
    assert next_actions(view(*copies, redundancy=limits), NOW) == expected


def test_ended_workunit_drops_what_is_open_and_nothing_else():
    ended = replace(
        view(Result("a"), running("b"), done("c")), outcome=OutcomeKind.CANCELLED
    )
    assert next_actions(ended, NOW) == [Drop("a"), Drop("b")]


def test_no_copy_outlives_the_admission():
    limits = Redundancy(delay_bound_s=300)
    late = view(Result("a"), Result("b"), redundancy=limits, not_after=NOW + 299)
    assert not may_issue(late, Caller(1, "h1"), NOW)
    assert next_actions(late, NOW) == [Drop("a"), Drop("b")]
    just = replace(late, not_after=NOW + 300)
    assert may_issue(just, Caller(1, "h1"), NOW)
    assert deadline_of(limits, NOW) <= just.not_after


def test_admission_over_waits_for_hosts_then_ends():
    limits = Redundancy(delay_bound_s=300)
    waiting = view(running("a"), redundancy=limits, not_after=NOW + 100)
    assert next_actions(waiting, NOW) == []
    over = replace(waiting, results=(failed("a", ResultOutcome.NO_REPLY),))
    assert next_actions(over, NOW) == [Finish(OutcomeKind.ADMISSION_ENDED)]


def test_validator_that_never_answers_holds_a_workunit_no_longer_than_a_day():
    waiting = view(done("a", Validity.INIT), not_after=NOW)
    day = 86_400
    assert next_actions(waiting, NOW + day) == [Check("a")]
    ended = [Finish(OutcomeKind.ADMISSION_ENDED)]
    assert next_actions(waiting, NOW + day + 1) == ended


@pytest.mark.parametrize("outcome", list(ResultOutcome))
def test_user_or_host_that_ever_had_a_copy_gets_no_other(outcome):
    had = view(failed("a", outcome, user=7), Result("b"))
    assert not may_issue(had, Caller(7, "other"), NOW)
    assert not may_issue(had, Caller(8, "h7"), NOW)
    assert may_issue(had, Caller(8, "h8"), NOW)


def test_late_result_counts_until_the_workunit_has_an_outcome():
    late = failed("a", ResultOutcome.NO_REPLY)
    assert can_receive(view(late), late)
    assert not can_receive(replace(view(late), outcome=OutcomeKind.CANCELLED), late)
    assert not can_receive(view(done("b")), done("b"))


def test_quorum_of_one_compares_nobody():
    verdict = judge(("a", "b"), 1, lambda *_: pytest.fail("compared"))
    assert (verdict.canonical, verdict.same) == ("a", ("a",))


@given(
    st.lists(st.integers(0, 3), min_size=1, max_size=7),
    st.integers(2, 4),
)
def test_judge_finds_a_quorum_iff_one_class_is_large_enough(classes, quorum):
    names = tuple(str(number) for number in range(len(classes)))
    verdict = judge(names, quorum, lambda a, b: classes[int(a)] == classes[int(b)])
    large = [value for value in classes if classes.count(value) >= quorum]
    assert bool(verdict.canonical) == bool(large)
    if large:
        assert len(verdict.same) == classes.count(classes[int(verdict.canonical)])


# ------------------------------------------------------------------ after the end


def ended(*copies, **changes):
    fields = {"outcome": OutcomeKind.CANONICAL, "canonical": "a", "lingering": True}
    return replace(view(done("a", Validity.VALID), *copies), **{**fields, **changes})


AFTER_END = {
    "a host that still works may finish": ((running("b", 2),), []),
    "an unsent copy is for nobody": ((running("b", 2), Result("c")), [Drop("c")]),
    "a host that is silent has no reply": (
        (running("b", 2, NOW - 1),),
        [Expire("b")],
    ),
    "a result that comes is looked at": (
        (done("b", Validity.INIT, 2),),
        [Check("b")],
    ),
    "and compared with the canonical one": (
        (done("b", Validity.CHECKED, 2),),
        [Compare("b")],
    ),
    "nothing can come any more": ((done("b", Validity.INVALID, 2),), [Close()]),
    "a silent host's files are not kept": (
        (failed("b", ResultOutcome.NO_REPLY, 2),),
        [Close()],
    ),
    "a re-check waits for a trusted host": (
        (Result("b", recheck=CheckVerdict.PENDING),),
        [],
    ),
}


@pytest.mark.parametrize("name", AFTER_END)
def test_actions_after_a_canonical_result_by_case(name):
    copies, expected = AFTER_END[name]
    assert next_actions(ended(*copies), NOW) == expected


def test_nothing_is_compared_before_the_server_has_the_outcome():
    late = ended(done("b", Validity.INIT, 2), Result("c"), delivered=False)
    assert next_actions(late, NOW) == [Drop("c")]
    assert next_actions(ended(delivered=False), NOW) == []


def test_files_are_kept_no_longer_than_the_admission():
    undecided = ended(done("b", Validity.CHECKED, 2), not_after=NOW)
    assert next_actions(undecided, NOW) == [Compare("b")]
    assert next_actions(undecided, NOW + 1) == [Close()]


def test_result_after_the_end_counts_while_there_is_one_to_compare_it_with():
    late = failed("b", ResultOutcome.NO_REPLY, 2)
    assert can_receive(ended(late), late)
    assert can_receive(ended(running("c", 3)), running("c", 3))
    assert not can_receive(ended(late, lingering=False), late)


def test_recheck_goes_to_trusted_accounts_that_had_no_copy_only():
    checked = ended(Result("b", recheck=CheckVerdict.PENDING))
    ours = Caller(5, "h5", trusted_account=True)
    assert may_recheck(checked, ours, NOW)
    assert not may_issue(checked, ours, NOW)
    assert not may_recheck(checked, Caller(5, "h5"), NOW)
    assert not may_recheck(checked, replace(ours, user_id=1), NOW)
    assert not may_recheck(checked, replace(ours, host_key="h1"), NOW)


# ------------------------------------------------------------------ how copies spread

INTEL, ARM = Caller(8, "h8", "linux x86"), Caller(9, "h9", "linux arm")


def test_homogeneous_workunit_goes_to_one_class_and_never_to_an_unknown_host():
    free = replace(view(Result("a")), homogeneous=Homogeneity.COARSE)
    taken = replace(free, host_class="linux x86")
    assert may_issue(free, INTEL, NOW)
    assert may_issue(free, ARM, NOW)
    assert may_issue(taken, INTEL, NOW)
    assert not may_issue(taken, ARM, NOW)
    assert not may_issue(free, Caller(8, "h8"), NOW)


@pytest.mark.parametrize(
    ("copies", "freed"),
    [
        ((failed("a"), Result("b")), True),
        ((failed("a", ResultOutcome.ABORTED), Result("b")), True),
        ((failed("a", ResultOutcome.REFUSED), Result("b")), True),
        ((failed("a", ResultOutcome.NO_REPLY), Result("b")), False),
        ((failed("a"), running("b", 2)), False),
        ((failed("a"), done("b", user=2)), False),
    ],
)
def test_class_is_released_when_nothing_came_or_can_come_of_it(copies, freed):
    committed = replace(
        view(*copies), homogeneous=Homogeneity.COARSE, host_class="linux x86"
    )
    assert (next_actions(committed, NOW) == [ReleaseClass()]) is freed


def test_workunit_alone_needs_one_copy_and_one_result():
    alone = replace(view(), alone=True)
    assert next_actions(alone, NOW) == [Create(1)]
    settled = replace(alone, results=(done("a"),))
    assert next_actions(settled, NOW) == [Judge(("a",))]


def test_raised_workunit_needs_its_quorum_again():
    raised = view(running("a"))
    assert next_actions(raised, NOW) == [Create(1)]
    assert next_actions(view(done("a"), running("b", 2)), NOW) == []


def test_result_beside_a_quorum_of_one_is_not_called_wrong():
    one = Redundancy(min_quorum=1, target_results=2)
    both = view(done("a"), done("b", user=2), redundancy=one)
    assert next_actions(both, NOW) == [Judge(("a",))]


@pytest.mark.parametrize(("turned_away", "left"), [(4, False), (5, True)])
def test_newcomer_gets_nothing_of_what_many_have_turned_away(turned_away, left):
    failures = [
        failed(f"a{i}", ResultOutcome.ABORTED, i) for i in range(1, 1 + turned_away)
    ]
    shunned = view(*failures, Result("n"))
    assert may_issue(shunned, Caller(50, "h50"), NOW)
    assert may_issue(shunned, Caller(50, "h50", newcomer=True), NOW) is not left


def test_owner_of_a_copied_cpid_is_not_blocked_and_the_copier_is():
    owner, copier = Caller(8, "k", cpid="k"), Caller(9, "9~k", cpid="k")
    of_copier = view(Result("a", user_id=9, host_key="9~k"), Result("b"))
    of_owner = view(Result("a", user_id=8, host_key="k"), Result("b"))
    assert may_issue(of_copier, owner, NOW)
    assert not may_issue(of_owner, copier, NOW)
