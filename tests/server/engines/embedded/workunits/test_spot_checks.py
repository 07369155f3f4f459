"""Trusted re-checkers: what is computed again, and what follows."""

from __future__ import annotations

import pytest
from engine_bench import EmbeddedBench
from sqlalchemy import select

from stoilo.core.errors import DeniedError, UsageError
from stoilo.core.types import Redundancy
from stoilo.server.engines.embedded.db import schema
from stoilo.server.engines.embedded.db.records import CheckVerdict, Validity
from stoilo.server.engines.embedded.engine import EngineOptions
from stoilo.server.engines.interface import OutcomeKind, ResultOutcome
from stoilo.server.engines.workunits import Replication
from tests.support.engine import make_spec

OURS = 9


def open_bench(tmp_path, clock, rate=1.0, draw=0.5, url=""):
    options = EngineOptions(spot_check_rate=rate, draw=lambda: draw)
    return EmbeddedBench(tmp_path / "engine", clock, options, database_url=url)


@pytest.fixture
def bench(tmp_path, clock):
    made = open_bench(tmp_path, clock)
    made.trust(OURS)
    yield made
    made.engine.close()


@pytest.fixture
def either(tmp_path, clock, engine_url):
    """The same on each kind of database."""
    made = open_bench(tmp_path, clock, url=engine_url)
    made.trust(OURS)
    yield made
    made.engine.close()


def settle_quorum(bench, body=b"x", users=(1, 2), name="w_1", **changes):
    bench.engine.create_workunits([make_spec(name, **changes)])
    for user in users:
        bench.finish(user, *bench.fetch(user), body)
    bench.settle()
    assert bench.outcomes.kind(name) is OutcomeKind.CANONICAL


def disprove(bench, body=b"true", second=b"true", other=8):
    """Let a trusted host and then another one say what the result should have been."""
    bench.finish(OURS, *bench.fetch(OURS, room=1), body)
    bench.settle()
    bench.finish(other, *bench.fetch(other, room=1), second)
    bench.settle()


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
    disprove(bench)
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
    disprove(bench)
    bench.engine.create_workunits([make_spec("w_2")])
    assert bench.fetch(1) == []
    assert bench.fetch(7, cpid=f"{1:032x}")  # else knowing a CPID would be enough


def test_lifted_ban_lets_a_host_work_again(bench):
    settle_quorum(bench, b"lie")
    disprove(bench)
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
    disprove(bench)
    with pytest.raises(DeniedError, match="STO-E014"):
        bench.upload(running, b"lie 2")
    bench.settle()
    assert bench.outcomes.kind("w_2") is None
    shown = [copy.outcome for copy in bench.engine.status("w_2").results]
    assert shown[:2] == [ResultOutcome.INVALID, ResultOutcome.INVALID]


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
    disprove(bench)
    assert verdicts(bench) == [CheckVerdict.DIFFERENT]


def test_account_that_does_not_exist_cannot_be_trusted(bench):
    with pytest.raises(UsageError, match="STO-R029"):
        bench.engine.roster.trust("nobody@example.org")


# ------------------------------------------------------------------ second opinions


def banned(bench):
    return [host.email for host in bench.engine.roster.list_hosts() if host.banned]


def test_one_comparison_bans_nobody_and_asks_a_third_host(either):
    settle_quorum(either, b"lie")
    either.finish(OURS, *either.fetch(OURS), b"true")
    either.settle()
    assert verdicts(either) == banned(either) == []
    assert either.fetch(1) == []
    either.finish(8, *either.fetch(8), b"true")
    either.settle()
    assert verdicts(either) == [CheckVerdict.DIFFERENT]
    assert banned(either) == ["u1@example.org", "u2@example.org"]
    assert files(either) == []


def test_second_opinion_goes_to_another_trusted_account_where_there_is_one(bench):
    bench.trust(7)
    settle_quorum(bench, b"lie")
    bench.finish(OURS, *bench.fetch(OURS), b"true")
    bench.settle()
    assert bench.fetch(8) == []
    bench.finish(7, *bench.fetch(7), b"true")
    bench.settle()
    assert verdicts(bench) == [CheckVerdict.DIFFERENT]


@pytest.mark.parametrize("second", [b"x", b"something else", b"fatal"])
def test_second_opinion_that_does_not_agree_bans_nobody(bench, second):
    settle_quorum(bench)
    disprove(bench, b"odd", second)
    expected = CheckVerdict.DISPUTED if second != b"fatal" else CheckVerdict.UNFINISHED
    assert verdicts(bench) == [expected]
    assert banned(bench) == files(bench) == []


@pytest.mark.parametrize("what", ["silent", "error", "bad"])
def test_useless_second_opinions_are_followed_by_others_but_not_for_ever(bench, what):
    settle_quorum(bench, b"lie")
    bench.finish(OURS, *bench.fetch(OURS), b"true")
    bench.settle()
    for user in (4, 5, 6):
        (copy,) = bench.fetch(user)
        if what == "error":
            bench.fail(user, copy)
        elif what == "bad":
            bench.finish(user, copy, b"bad")
        bench.pass_time(301 if what == "silent" else 0)
        bench.settle()
    assert bench.fetch(7) == []
    assert verdicts(bench) == [CheckVerdict.UNFINISHED]
    assert banned(bench) == files(bench) == []


def test_second_opinion_that_nobody_gives_in_time_bans_nobody(bench, clock):
    settle_quorum(bench, b"lie", not_after=clock() + 1000)
    bench.finish(OURS, *bench.fetch(OURS), b"true")
    bench.settle()
    bench.pass_time(701)
    bench.settle()
    assert verdicts(bench) == [CheckVerdict.UNFINISHED]
    assert banned(bench) == files(bench) == []


def test_second_opinion_is_resent_and_survives_a_restart(bench):
    settle_quorum(bench, b"lie")
    bench.finish(OURS, *bench.fetch(OURS), b"true")
    bench.settle()
    (copy,) = bench.fetch(8)
    bench.restart()
    assert [one.name for one in bench.request(8).results] == [copy]
    bench.finish(8, copy, b"true")
    bench.settle()
    assert verdicts(bench) == [CheckVerdict.DIFFERENT]


def decide_late(bench, *, fetched):
    """Let a second opinion come after its deadline, when another is asked for."""
    settle_quorum(bench, b"lie")
    bench.finish(OURS, *bench.fetch(OURS), b"true")
    bench.settle()
    (late,) = bench.fetch(4)
    bench.pass_time(301)
    bench.settle()
    other = bench.fetch(5) if fetched else []
    bench.finish(4, late, b"true")
    bench.settle()
    assert verdicts(bench) == [CheckVerdict.DIFFERENT]
    return other


def validity(bench, copy):
    table = schema.results
    with bench.engine._database.read() as connection:
        query = select(table.c.validity).where(table.c.name == copy)
        return Validity(connection.scalar(query))


def test_opinion_that_nobody_took_is_dropped_when_a_late_one_decides(either):
    decide_late(either, fetched=False)
    assert either.fetch(5) == either.fetch(6) == []
    assert files(either) == []


@pytest.mark.parametrize(
    ("body", "expected"),
    [
        (b"junk", Validity.TOO_LATE),
        (b"true", Validity.TOO_LATE),
        (b"lie", Validity.VALID),
    ],
)
def test_opinion_after_the_verdict_is_good_only_where_it_is_canonical(
    bench, body, expected
):
    (copy,) = decide_late(bench, fetched=True)
    assert files(bench)
    bench.finish(5, copy, body)
    bench.settle()
    assert validity(bench, copy) is expected
    assert verdicts(bench) == [CheckVerdict.DIFFERENT]
    assert files(bench) == []


# ------------------------------------------------------------------ resumed runs


def test_two_resumed_checks_prove_nothing(bench):
    settle_quorum(bench)
    disprove(bench, b"other~", b"other~")
    assert verdicts(bench) == [CheckVerdict.DISPUTED]
    assert banned(bench) == []


@pytest.mark.parametrize(("first", "second"), [(b"a~", b"a"), (b"a", b"a~")])
def test_one_check_in_one_go_is_enough(bench, first, second):
    settle_quorum(bench)
    disprove(bench, first, second)
    assert verdicts(bench) == [CheckVerdict.DIFFERENT]


def test_host_that_resumed_is_excused_without_its_record_and_not_for_ever(either):
    either.set_record(1, 10)
    either.set_record(2, 10)
    for round_ in range(3):
        assert banned(either) == []
        settle_quorum(either, b"lie~", name=f"w_{round_}")
        disprove(either)
        assert (either.record(1), either.record(2)) == (0, 0)
    checks = either.engine.roster.spot_checks()
    assert [len(check.excused) for check in checks] == [2, 2, 0]
    assert banned(either) == ["u1@example.org", "u2@example.org"]
