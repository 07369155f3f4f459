"""What every work engine does, whatever stands behind it. Subclass and give a `bench`."""

from __future__ import annotations

from typing import Protocol

import pytest

from stoilo.core.errors import TrustError, UsageError
from stoilo.core.types import Redundancy
from stoilo.server.engines.interface import (
    Engine,
    OutcomeKind,
    ResultOutcome,
    ResultProgress,
)
from stoilo.server.engines.workunits import WorkunitFile
from tests.support.engine import BodyValidation, OutcomeRecorder, make_spec

SINGLE = Redundancy(
    min_quorum=1, target_results=1, max_error=1, max_total=3, max_success=3
)


class Bench(Protocol):
    """An engine with volunteers and a clock, driven by hand."""

    engine: Engine
    outcomes: OutcomeRecorder
    validation: BodyValidation

    def fetch(self, user: int, *, room: int = 8) -> list[str]: ...
    def finish(self, user: int, copy: str, body: bytes) -> None: ...
    def fail(self, user: int, copy: str) -> None: ...
    def report(self, user: int, copy: str) -> None: ...
    def unneeded(self, user: int, *copies: str) -> list[str]: ...
    def pass_time(self, seconds: int) -> None: ...
    def settle(self) -> None: ...
    def restart(self) -> None: ...


class EngineContract:
    """The tests; `bench` is the subclass's fixture."""

    def kind(self, bench, name="w_1"):
        bench.settle()
        return bench.outcomes.kind(name)

    def start(self, bench, *users, **spec):
        bench.engine.create_workunits([make_spec("w_1", **spec)])
        return [bench.fetch(user)[0] for user in users]

    def test_quorum_of_equal_results_is_canonical(self, bench):
        first, second = self.start(bench, 1, 2)
        bench.finish(1, first, b"same")
        assert self.kind(bench) is None
        bench.finish(2, second, b"same")
        assert self.kind(bench) is OutcomeKind.CANONICAL
        outcome = bench.outcomes.outcomes["w_1"]
        assert bench.outcomes.bodies["w_1"] == b"same"
        assert {result.name for result in outcome.valid} == {first, second}

    def test_cheat_is_outvoted_by_a_third(self, bench):
        first, second = self.start(bench, 1, 2)
        bench.finish(1, first, b"true")
        bench.finish(2, second, b"lie")
        bench.settle()
        (third,) = bench.fetch(3)
        bench.finish(3, third, b"true")
        assert self.kind(bench) is OutcomeKind.CANONICAL
        valid = bench.outcomes.outcomes["w_1"].valid
        assert bench.outcomes.bodies["w_1"] == b"true"
        assert {result.name for result in valid} == {first, third}

    def test_three_different_answers_end_without_a_result(self, bench):
        copies = self.start(bench, 1, 2)
        for user, copy in zip((1, 2), copies, strict=True):
            bench.finish(user, copy, b"answer %d" % user)
        bench.settle()
        (third,) = bench.fetch(3)
        bench.finish(3, third, b"answer 3")
        assert self.kind(bench) in {
            OutcomeKind.TOO_MANY_TOTAL,
            OutcomeKind.TOO_MANY_SUCCESS,
        }
        assert bench.outcomes.outcomes["w_1"].canonical is None

    def test_failures_beyond_the_limit_end_it(self, bench):
        redundancy = Redundancy(max_error=1)
        copies = self.start(bench, 1, 2, redundancy=redundancy)
        for user, copy in zip((1, 2), copies, strict=True):
            bench.fail(user, copy)
        assert self.kind(bench) is OutcomeKind.TOO_MANY_ERRORS
        assert bench.outcomes.outcomes["w_1"].code

    def test_invalid_result_counts_as_error_and_another_host_gets_a_copy(self, bench):
        (first,) = self.start(bench, 1, redundancy=SINGLE)
        bench.finish(1, first, b"bad")
        bench.settle()
        (second,) = bench.fetch(2)
        bench.finish(2, second, b"good")
        assert self.kind(bench) is OutcomeKind.CANONICAL

    def test_refusal_by_opt_in_is_not_counted(self, bench):
        bench.engine.create_workunits([make_spec("w_1", redundancy=SINGLE)])
        for user in range(1, 6):  # more than max_error and max_total
            (copy,) = bench.fetch(user)
            bench.finish(user, copy, b"optin")
            bench.settle()
        (copy,) = bench.fetch(9)
        bench.finish(9, copy, b"fine")
        assert self.kind(bench) is OutcomeKind.CANONICAL

    def test_refusals_are_capped(self, bench):
        bench.engine.create_workunits([make_spec("w_1", redundancy=SINGLE)])
        for user in range(1, 12):
            (copy,) = bench.fetch(user)
            bench.finish(user, copy, b"optin")
            bench.settle()
        assert self.kind(bench) is OutcomeKind.TOO_MANY_REFUSALS

    def test_validator_that_breaks_ends_it_with_its_code(self, bench):
        (copy,) = self.start(bench, 1, redundancy=SINGLE)
        bench.finish(1, copy, b"fatal")
        assert self.kind(bench) is OutcomeKind.VALIDATOR_FAILED
        assert bench.outcomes.outcomes["w_1"].code == "STO-R057"

    def test_our_own_trouble_is_asked_again_and_blames_nobody(self, bench):
        (copy,) = self.start(bench, 1, redundancy=SINGLE)
        bench.finish(1, copy, b"broken")
        assert self.kind(bench) is None
        bench.pass_time(60)
        assert self.kind(bench) is None
        status = bench.engine.status("w_1")
        assert status.results[0].outcome is ResultOutcome.SUCCESS

    @pytest.mark.parametrize("what", ["slow", "slow_pairs"])
    def test_validator_that_has_not_run_holds_up_nobody_else(self, bench, what):
        setattr(bench.validation, what, [b"slow"])
        bench.engine.create_workunits([make_spec("w_1"), make_spec("w_2")])
        for user in (1, 2):
            for copy in bench.fetch(user):
                body = b"slow" if "w_1" in copy else b"quick"
                bench.finish(user, copy, body)
        assert self.kind(bench, "w_2") is OutcomeKind.CANONICAL
        bench.engine.ask_again("w_1")  # to be told too soon changes nothing
        assert self.kind(bench) is None
        setattr(bench.validation, what, [])
        assert self.kind(bench) is None
        bench.engine.ask_again("w_1")
        assert self.kind(bench) is OutcomeKind.CANONICAL

    def test_cancelled_while_its_validators_run_it_is_over(self, bench):
        bench.validation.slow = [b"slow"]
        (copy,) = self.start(bench, 1, redundancy=SINGLE)
        bench.finish(1, copy, b"slow")
        assert self.kind(bench) is None
        bench.engine.cancel("w_1")
        bench.validation.slow = []
        bench.engine.ask_again("w_1")
        assert self.kind(bench) is OutcomeKind.CANCELLED

    def test_nobody_gets_two_copies_of_one_workunit(self, bench):
        redundancy = Redundancy(target_results=3)
        bench.engine.create_workunits([make_spec("w_1", redundancy=redundancy)])
        assert len(bench.fetch(1)) == 1
        assert bench.fetch(1) == []

    def test_silent_host_is_replaced_after_the_deadline(self, bench):
        redundancy = Redundancy(delay_bound_s=100, max_total=4)
        self.start(bench, 1, 2, redundancy=redundancy)
        assert bench.fetch(3) == []
        bench.pass_time(101)
        bench.settle()
        assert len(bench.fetch(3)) == 1

    def test_late_result_still_counts(self, bench):
        redundancy = Redundancy(delay_bound_s=100)
        first, second = self.start(bench, 1, 2, redundancy=redundancy)
        bench.finish(1, first, b"x")
        bench.pass_time(101)
        bench.settle()
        assert bench.engine.status("w_1").results[1].outcome is ResultOutcome.NO_REPLY
        bench.finish(2, second, b"x")
        assert self.kind(bench) is OutcomeKind.CANONICAL

    def test_result_after_the_end_changes_nothing(self, bench):
        redundancy = Redundancy(
            min_quorum=1, target_results=2, max_error=1, max_success=3
        )
        first, second = self.start(bench, 1, 2, redundancy=redundancy)
        bench.finish(1, first, b"a")
        assert self.kind(bench) is OutcomeKind.CANONICAL
        before = bench.outcomes.outcomes["w_1"]
        bench.report(2, second)
        bench.settle()
        assert bench.outcomes.outcomes["w_1"] is before
        assert bench.outcomes.calls["w_1"] == 1

    def test_silent_hosts_use_up_the_total_and_not_the_errors(self, bench):
        redundancy = Redundancy(max_error=1, max_total=4, delay_bound_s=100)
        self.start(bench, 1, 2, redundancy=redundancy)
        bench.pass_time(101)
        bench.settle()
        for user in (3, 4):
            (copy,) = bench.fetch(user)
            bench.finish(user, copy, b"x")
        assert self.kind(bench) is OutcomeKind.CANONICAL

    @pytest.mark.parametrize(
        ("body", "outcome"),
        [(b"x", ResultOutcome.SUCCESS), (b"lie", ResultOutcome.INVALID)],
    )
    def test_host_still_working_at_the_end_may_finish(self, bench, body, outcome):
        redundancy = Redundancy(target_results=3)
        copies = self.start(bench, 1, 2, 3, redundancy=redundancy)
        for user in (1, 2):
            bench.finish(user, copies[user - 1], b"x")
        assert self.kind(bench) is OutcomeKind.CANONICAL
        before = bench.outcomes.outcomes["w_1"]
        bench.finish(3, copies[2], body)
        bench.settle()
        assert bench.engine.status("w_1").results[2].outcome is outcome
        assert bench.outcomes.outcomes["w_1"] is before
        assert bench.outcomes.calls["w_1"] == 1

    def test_no_copy_is_issued_that_outlives_the_admission(self, bench):
        now = bench.engine.now()
        redundancy = Redundancy(delay_bound_s=100)
        spec = make_spec("w_1", redundancy=redundancy, not_after=now + 99)
        bench.engine.create_workunits([spec])
        assert bench.fetch(1) == []
        bench.settle()
        assert self.kind(bench) is OutcomeKind.ADMISSION_ENDED

    def test_cancel_ends_it_and_tells_hosts(self, bench):
        (first,) = self.start(bench, 1)
        bench.engine.cancel("w_1")
        assert bench.unneeded(1, first) == [first]
        assert self.kind(bench) is OutcomeKind.CANCELLED
        assert bench.fetch(2) == []
        assert all(
            copy.state is ResultProgress.OVER
            for copy in bench.engine.status("w_1").results
        )

    def test_many_are_cancelled_together(self, bench):
        names = [f"w_{number}" for number in range(70)]
        bench.engine.create_workunits([make_spec(name) for name in [*names, "w_other"]])
        bench.engine.cancel(*names, "never made")
        bench.settle()
        assert {bench.outcomes.kind(one) for one in names} == {OutcomeKind.CANCELLED}
        assert bench.engine.status("w_other").outcome is None

    def test_cancel_after_the_end_and_of_the_unknown_changes_nothing(self, bench):
        (copy,) = self.start(bench, 1, redundancy=SINGLE)
        bench.finish(1, copy, b"x")
        bench.settle()
        bench.engine.cancel("w_1")
        bench.engine.cancel("never made")
        assert self.kind(bench) is OutcomeKind.CANONICAL
        assert bench.outcomes.calls["w_1"] == 1

    def test_creating_twice_makes_one_workunit(self, bench):
        for _ in range(2):
            bench.engine.create_workunits([make_spec("w_1"), make_spec("w_2")])
        bench.settle()
        assert len(bench.engine.status("w_1").results) == 2
        assert len(bench.fetch(1)) == 2

    def test_one_bad_spec_stores_none(self, bench):
        wrong = WorkunitFile("arguments", "0" * 64, b"not of this digest")
        bad = make_spec("w_2")
        bad = type(bad)(**{**_fields(bad), "files": (wrong,)})
        with pytest.raises(TrustError, match="STO-E002"):
            bench.engine.create_workunits([make_spec("w_1"), bad])
        assert bench.engine.status("w_1") is None

    @pytest.mark.parametrize(
        "changes",
        [
            {"name": "../x"},
            {"name": "x" * 101},
            {"app": ""},
            {"result_max_bytes": 0},
            {"redundancy": Redundancy(min_quorum=4, max_total=3)},
        ],
    )
    def test_senseless_spec_is_refused(self, bench, changes):
        fields = {**_fields(make_spec("w_1")), **changes}
        with pytest.raises(UsageError, match="STO-E001"):
            bench.engine.create_workunits([type(make_spec("w_1"))(**fields)])

    def test_refused_outcome_comes_again_and_is_taken_once(self, bench):
        bench.outcomes.refuse = 2
        (copy,) = self.start(bench, 1, redundancy=SINGLE)
        bench.finish(1, copy, b"x")
        assert self.kind(bench) is None
        for _ in range(3):
            bench.pass_time(30)
            bench.settle()
        assert bench.outcomes.calls["w_1"] == 3
        assert self.kind(bench) is OutcomeKind.CANONICAL

    def test_restart_loses_nothing(self, bench):
        first, second = self.start(bench, 1, 2)
        bench.finish(1, first, b"x")
        bench.restart()
        bench.finish(2, second, b"x")
        bench.restart()
        assert self.kind(bench) is OutcomeKind.CANONICAL
        assert bench.outcomes.calls["w_1"] == 1

    def test_status_says_what_is_missing(self, bench):
        bench.engine.create_workunits([make_spec("w_1")])
        bench.fetch(1)
        status = bench.engine.status("w_1")
        assert status.explanation == "needs 2 distinct users, 1 attached"
        assert status.users_attached == 1

    def test_status_says_who_has_a_copy(self, bench):
        bench.engine.create_workunits([make_spec("w_1")])
        bench.fetch(1)
        first, second = sorted(one.host for one in bench.engine.status("w_1").results)
        assert (first, second > 0) == (0, True)  # one of both is nobody's yet

    def test_settled_is_what_was_never_made_or_has_been_told(self, bench):
        names = ["w_1", "w_2"]
        (copy,) = self.start(bench, 1, redundancy=SINGLE)
        assert bench.engine.settled(names) == {"w_2"}
        bench.finish(1, copy, b"body")
        assert self.kind(bench) is OutcomeKind.CANONICAL
        assert bench.engine.settled(names) == {"w_1", "w_2"}

    def test_outcome_that_the_server_has_not_taken_is_not_settled(self, bench):
        (copy,) = self.start(bench, 1, redundancy=SINGLE)
        bench.outcomes.refuse = 1_000_000
        bench.finish(1, copy, b"body")
        bench.settle()
        assert bench.outcomes.calls["w_1"]
        assert bench.engine.settled(["w_1"]) == frozenset()


def _fields(spec):
    return {name: getattr(spec, name) for name in spec.__slots__}
