"""The rules against a small reference model, and one table of named cases."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from stoilo.core.types import Redundancy
from stoilo.server.engines.embedded.transitioner import (
    Check,
    Copy,
    Create,
    Drop,
    Expire,
    Finish,
    Judge,
    Validity,
    WorkunitView,
    can_receive,
    deadline_of,
    judge,
    may_issue,
    next_actions,
    next_transition,
    refusal_cap,
)
from stoilo.server.engines.interface import CopyOutcome, CopyState, OutcomeKind

NOW = 1000
UNSENT, ON_HOST, OVER = CopyState.UNSENT, CopyState.IN_PROGRESS, CopyState.OVER


def view(*copies, redundancy=None, not_after=10**9):
    return WorkunitView(redundancy or Redundancy(), not_after, copies)


def done(name, validity=Validity.CHECKED, user=1):
    return Copy(name, OVER, CopyOutcome.SUCCESS, validity, user, f"h{user}", NOW)


def failed(name, outcome=CopyOutcome.CLIENT_ERROR, user=1):
    return Copy(name, OVER, outcome, Validity.INIT, user, f"h{user}", NOW)


def running(name, user=1, deadline=NOW + 50):
    return Copy(name, ON_HOST, user_id=user, host_key=f"h{user}", deadline=deadline)


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
        (failed("a", CopyOutcome.NO_REPLY), running("b", 2)),
        [Create(1)],
    ),
    "refusal: one more, not counted": (
        tuple(failed(f"r{i}", CopyOutcome.REFUSED, i) for i in range(8)),
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
    "too many refusals": (
        tuple(failed(f"r{i}", CopyOutcome.REFUSED, i) for i in range(11)),
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
        view(Copy("a"), running("b"), done("c")), outcome=OutcomeKind.CANCELLED
    )
    assert next_actions(ended, NOW) == [Drop("a"), Drop("b")]


def test_no_copy_outlives_the_admission():
    limits = Redundancy(delay_bound_s=300)
    late = view(Copy("a"), Copy("b"), redundancy=limits, not_after=NOW + 299)
    assert not may_issue(late, 1, "h1", NOW)
    assert next_actions(late, NOW) == [Drop("a"), Drop("b")]
    just = replace(late, not_after=NOW + 300)
    assert may_issue(just, 1, "h1", NOW)
    assert deadline_of(limits, NOW) <= just.not_after


def test_admission_over_waits_for_hosts_then_ends():
    limits = Redundancy(delay_bound_s=300)
    waiting = view(running("a"), redundancy=limits, not_after=NOW + 100)
    assert next_actions(waiting, NOW) == []
    over = replace(waiting, copies=(failed("a", CopyOutcome.NO_REPLY),))
    assert next_actions(over, NOW) == [Finish(OutcomeKind.ADMISSION_ENDED)]


@pytest.mark.parametrize("outcome", list(CopyOutcome))
def test_user_or_host_that_ever_had_a_copy_gets_no_other(outcome):
    had = view(failed("a", outcome, user=7), Copy("b"))
    assert not may_issue(had, 7, "other", NOW)
    assert not may_issue(had, 8, "h7", NOW)
    assert may_issue(had, 8, "h8", NOW)


def test_late_result_counts_until_the_workunit_has_an_outcome():
    late = failed("a", CopyOutcome.NO_REPLY)
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


# ------------------------------------------------------------------ reference model


@st.composite
def redundancies(draw):
    quorum = draw(st.integers(1, 4))
    target = draw(st.integers(quorum, 5))
    total = draw(st.integers(target, 8))
    return Redundancy(
        min_quorum=quorum,
        target_results=target,
        max_total=total,
        max_success=draw(st.integers(quorum, total)),
        max_error=draw(st.integers(1, total)),
        delay_bound_s=draw(st.integers(1, 50)),
    )


EVENTS = st.tuples(
    st.sampled_from(
        ["issue", "answer", "answer", "error", "refuse", "bad", "late", "time", "end"]
    ),
    st.integers(0, 9),
)


class Simulation:
    """Applies actions by hand and keeps an own, simpler account of what happened."""

    def __init__(self, redundancy, not_after):
        self.view = view(redundancy=redundancy, not_after=not_after)
        self.now = 0
        self.values = {}
        self.created = 0
        self.finishes = []

    def copy(self, name):
        return next(copy for copy in self.view.copies if copy.name == name)

    def change(self, name, **fields):
        copies = tuple(
            replace(copy, **fields) if copy.name == name else copy
            for copy in self.view.copies
        )
        self.view = replace(self.view, copies=copies)

    def settle(self):
        for _ in range(200):
            actions = next_actions(self.view, self.now)
            if not actions:
                return
            for action in actions:
                self.apply(action)
        pytest.fail("the rules do not come to rest")

    def apply(self, action):
        match action:
            case Expire(name):
                assert self.copy(name).deadline < self.now
                self.change(name, state=OVER, outcome=CopyOutcome.NO_REPLY)
            case Drop(name):
                self.change(name, state=OVER, outcome=CopyOutcome.NOT_NEEDED)
            case Create(count):
                made = [Copy(f"c{self.created + i}") for i in range(count)]
                self.created += count
                self.view = replace(self.view, copies=(*self.view.copies, *made))
            case Check(name):
                self.check(name)
            case Judge(names):
                self.judge(names)
            case Finish(kind):
                self.finish(kind)

    def check(self, name):
        value = self.values[name]
        if value == "bad":
            self.change(name, outcome=CopyOutcome.INVALID, validity=Validity.INVALID)
        elif value == "refuse":
            self.change(name, outcome=CopyOutcome.REFUSED)
        else:
            self.change(name, validity=Validity.CHECKED)

    def judge(self, names):
        quorum = self.view.redundancy.min_quorum
        verdict = judge(names, quorum, lambda a, b: self.values[a] == self.values[b])
        for name in names:
            self.change(name, validity=Validity.INCONCLUSIVE)
        if verdict.canonical:
            assert len(verdict.same) >= quorum
            self.finish(OutcomeKind.CANONICAL)

    def finish(self, kind):
        self.finishes.append(kind)
        self.view = replace(self.view, outcome=kind)

    def issue(self, user):
        for copy in self.view.copies:
            if copy.state is UNSENT and may_issue(
                self.view, user + 1, f"h{user % 8}", self.now
            ):
                deadline = deadline_of(self.view.redundancy, self.now)
                assert deadline <= self.view.not_after
                self.change(
                    copy.name,
                    state=ON_HOST,
                    user_id=user + 1,
                    host_key=f"h{user % 8}",
                    deadline=deadline,
                )
                return

    def report(self, value, pick, *, late):
        wanted = CopyOutcome.NO_REPLY if late else CopyOutcome.NONE
        found = [
            copy
            for copy in self.view.copies
            if copy.user_id and copy.outcome is wanted and can_receive(self.view, copy)
        ]
        if found:
            name = found[pick % len(found)].name
            self.values[name] = value
            self.change(name, state=OVER, outcome=CopyOutcome.SUCCESS)

    def error(self, pick):
        found = [copy for copy in self.view.copies if copy.state is ON_HOST]
        if found:
            name = found[pick % len(found)].name
            self.change(name, state=OVER, outcome=CopyOutcome.CLIENT_ERROR)

    def play(self, event, number):
        match event:
            case "issue":
                self.issue(number)
            case "answer":
                self.report(number % 2, number, late=False)
            case "late":
                self.report(number % 2, number, late=True)
            case "bad" | "refuse":
                self.report(event, number, late=False)
            case "error":
                self.error(number)
            case "time":
                self.now += number * 7
            case "end" if number == 0 and self.view.outcome is None:
                self.finish(OutcomeKind.CANCELLED)
        self.settle()


def check_invariants(run):
    copies, limits = run.view.copies, run.view.redundancy
    sent = [copy for copy in copies if copy.user_id]
    assert len({copy.user_id for copy in sent}) == len(sent)
    assert len({copy.host_key for copy in sent}) == len(sent)
    counted = [copy for copy in sent if copy.outcome is not CopyOutcome.REFUSED]
    assert len(counted) <= limits.max_total
    assert len(run.finishes) <= 1
    if run.view.outcome is None:
        errors = {CopyOutcome.CLIENT_ERROR, CopyOutcome.NO_REPLY, CopyOutcome.INVALID}
        assert sum(copy.outcome in errors for copy in copies) <= limits.max_error
        refused = sum(copy.outcome is CopyOutcome.REFUSED for copy in copies)
        assert refused <= refusal_cap(limits)
        assert next_transition(run.view, run.now) >= run.now
    else:
        assert all(copy.state is OVER for copy in copies)


def largest_class(run):
    good = [
        run.values[copy.name]
        for copy in run.view.copies
        if copy.outcome is CopyOutcome.SUCCESS
    ]
    return max((good.count(value) for value in set(good)), default=0)


@settings(max_examples=200, deadline=None)
@given(redundancies(), st.integers(60, 400), st.lists(EVENTS, max_size=60))
def test_every_workunit_reaches_exactly_one_outcome(redundancy, not_after, events):
    run = Simulation(redundancy, not_after)
    run.settle()
    for event, number in events:
        run.play(event, number)
        check_invariants(run)
    run.now = not_after + redundancy.delay_bound_s  # hosts fall silent for ever
    run.settle()
    check_invariants(run)
    assert len(run.finishes) == 1
    if run.finishes == [OutcomeKind.CANONICAL]:
        assert largest_class(run) >= redundancy.min_quorum
    else:
        assert largest_class(run) < redundancy.min_quorum or (
            run.finishes == [OutcomeKind.CANCELLED]
        )
