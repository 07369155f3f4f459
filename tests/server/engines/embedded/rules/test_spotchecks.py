"""Trusted re-checkers: what is computed again, and what follows."""

from __future__ import annotations

import pytest
from engine_bench import EmbeddedBench

from stoilo.core.errors import DeniedError, UsageError
from stoilo.core.types import Redundancy
from stoilo.server.engines.embedded.engine import EngineOptions
from stoilo.server.engines.embedded.rules.spotchecks import CheckVerdict
from stoilo.server.engines.interface import CopyOutcome, OutcomeKind, Replication
from stoilo.testing.engine import make_spec

OURS = 9


def open_bench(tmp_path, clock, rate=1.0, draw=0.5):
    options = EngineOptions(spot_check_rate=rate, draw=lambda: draw)
    return EmbeddedBench(tmp_path / "engine", clock, options)


@pytest.fixture
def bench(tmp_path, clock):
    made = open_bench(tmp_path, clock)
    made.trust(OURS)
    yield made
    made.engine.close()


def settle_quorum(bench, body=b"x", users=(1, 2), name="w_1", **changes):
    bench.engine.create_workunits([make_spec(name, **changes)])
    for user in users:
        bench.finish(user, *bench.fetch(user), body)
    bench.settle()
    assert bench.outcomes.kind(name) is OutcomeKind.CANONICAL


def verdicts(bench):
    return [check.verdict for check in bench.engine.roster.spot_checks()]


def files(bench):
    return [path.name for path in (bench.directory / "uploads").iterdir()]


def test_canonical_result_is_computed_again_by_a_trusted_host_only(bench):
    settle_quorum(bench)
    assert bench.fetch(3) == []
    (copy,) = bench.fetch(OURS)
    bench.finish(OURS, copy, b"x")
    bench.settle()
    assert verdicts(bench) == [CheckVerdict.SAME]
    assert bench.fetch(1) == []
    assert files(bench) == []


def test_hosts_that_gave_a_wrong_answer_are_banned_and_told_so(bench):
    settle_quorum(bench, b"lie")
    before = bench.outcomes.outcomes["w_1"]
    bench.finish(OURS, *bench.fetch(OURS), b"true")
    bench.settle()
    (check,) = bench.engine.roster.spot_checks()
    assert (check.workunit, check.verdict) == ("w_1", CheckVerdict.DIFFERENT)
    assert len(check.banned) == 2
    bench.engine.create_workunits([make_spec("w_2")])
    for user in (1, 2):
        reply = bench.request(user, cpu_req_instances=1.0)
        assert reply.results == ()
        assert "STO-E041" in reply.messages[0]
    assert bench.fetch(3)
    assert bench.outcomes.outcomes["w_1"] is before
    assert bench.outcomes.calls["w_1"] == 1


def test_ban_reaches_nobody_else_who_shows_the_same_cpid(bench):
    settle_quorum(bench, b"lie")
    bench.finish(OURS, *bench.fetch(OURS), b"true")
    bench.settle()
    bench.engine.create_workunits([make_spec("w_2")])
    assert bench.fetch(1) == []
    assert bench.fetch(7, cpid=f"{1:032x}")  # else knowing a CPID would be enough


def test_lifted_ban_lets_a_host_work_again(bench):
    settle_quorum(bench, b"lie")
    bench.finish(OURS, *bench.fetch(OURS), b"true")
    bench.settle()
    for host in bench.engine.roster.spot_checks()[0].banned:
        bench.engine.roster.ban_host(host, bench.clock(), lift=True)
    bench.engine.create_workunits([make_spec("w_2")])
    assert bench.fetch(1)


def test_nothing_of_a_banned_host_decides_an_open_workunit(bench):
    limits = Redundancy(max_total=6, max_error=4, max_success=5)
    bench.engine.create_workunits([make_spec("w_2", redundancy=limits)])
    bench.finish(1, *bench.fetch(1), b"lie 2")
    bench.settle()
    (running,) = bench.fetch(2)
    settle_quorum(bench, b"lie")
    bench.finish(OURS, *bench.fetch(OURS, room=1), b"true")
    bench.settle()
    with pytest.raises(DeniedError, match="STO-E031"):
        bench.upload(running, b"lie 2")
    bench.settle()
    assert bench.outcomes.kind("w_2") is None
    shown = [copy.outcome for copy in bench.engine.status("w_2").copies]
    assert shown[:2] == [CopyOutcome.INVALID, CopyOutcome.INVALID]


def test_silent_checker_leaves_the_check_unfinished_and_bans_nobody(bench):
    settle_quorum(bench)
    assert bench.fetch(OURS)
    bench.pass_time(301)
    bench.settle()
    assert verdicts(bench) == [CheckVerdict.UNFINISHED]
    assert files(bench) == []
    bench.engine.create_workunits([make_spec("w_2")])
    assert bench.fetch(1)


def test_check_that_nobody_takes_ends_with_the_admission(bench, clock):
    settle_quorum(bench, not_after=clock() + 1000)
    assert files(bench)
    bench.pass_time(701)
    bench.settle()
    assert verdicts(bench) == [CheckVerdict.UNFINISHED]
    assert files(bench) == []


def test_lost_recheck_is_sent_again(bench):
    settle_quorum(bench)
    (copy,) = bench.fetch(OURS)
    assert [one.name for one in bench.request(OURS).results] == [copy]


def test_check_survives_a_restart(bench):
    settle_quorum(bench)
    (copy,) = bench.fetch(OURS)
    bench.restart()
    bench.finish(OURS, copy, b"x")
    bench.settle()
    assert verdicts(bench) == [CheckVerdict.SAME]


@pytest.mark.parametrize(
    ("rate", "draw", "checked"),
    [(0.1, 0.05, True), (0.1, 0.1, False), (0.0, 0.0, False)],
)
def test_share_of_results_that_is_checked_is_drawn(
    tmp_path, clock, rate, draw, checked
):
    bench = open_bench(tmp_path, clock, rate, draw)
    bench.trust(OURS)
    settle_quorum(bench)
    assert bool(bench.fetch(OURS)) is checked
    bench.engine.close()


def test_nothing_is_checked_again_without_a_trusted_account(tmp_path, clock):
    bench = open_bench(tmp_path, clock)
    settle_quorum(bench)
    assert files(bench) == []
    bench.engine.close()


def test_quorum_with_a_trusted_host_in_it_is_checked_already(bench):
    settle_quorum(bench, users=(1, OURS))
    assert files(bench) == []


def test_result_accepted_alone_is_checked_too(bench):
    bench.set_record(1, 10)
    settle_quorum(bench, b"lie", users=(1,), replication=Replication(adaptive=True))
    bench.finish(OURS, *bench.fetch(OURS), b"true")
    bench.settle()
    assert verdicts(bench) == [CheckVerdict.DIFFERENT]


def test_account_that_does_not_exist_cannot_be_trusted(bench):
    with pytest.raises(UsageError, match="STO-E040"):
        bench.engine.roster.trust("nobody@example.org", bench.clock())
