"""Accounts that turn work away, and CPIDs that somebody copied."""

from __future__ import annotations

from types import SimpleNamespace

import pytest
from engine_bench import EmbeddedBench
from hypothesis import given
from hypothesis import strategies as st

from stoilo.core.boinc.messages import ResultState
from stoilo.core.types import Redundancy
from stoilo.server.engines.embedded.accounts.accounts import is_newcomer
from stoilo.server.engines.embedded.accounts.quotas import (
    CONDUCT_RULES,
    Conduct,
    after_turning_away,
    pause_of,
)
from stoilo.server.engines.interface import OutcomeKind
from stoilo.server.engines.questions import refusal_cap
from tests.support.engine import make_spec

NOW = 1_800_000_000
PAIR = Redundancy(min_quorum=2, target_results=2, max_total=4)


@pytest.fixture
def bench(tmp_path, clock, engine_url):
    made = EmbeddedBench(tmp_path / "engine", clock, database_url=engine_url)
    yield made
    made.engine.close()


# ------------------------------------------------------------------ the rules


@pytest.mark.parametrize(("newcomer", "patience"), [(True, 3), (False, 20)])
def test_pause_begins_after_the_patience_and_doubles(newcomer, patience):
    conduct, pauses = Conduct(), []
    for _ in range(patience + 2):
        conduct = after_turning_away(conduct, NOW, newcomer=newcomer)
        pauses.append(max(0, conduct.paused_until - NOW))
    assert pauses[-4:] == [0, 60, 120, 240]


@given(st.integers(0, 10**6), st.booleans())
def test_pause_is_never_longer_than_an_hour_nor_shortened(before, newcomer):
    known = Conduct(before, NOW + 5)
    after = after_turning_away(known, NOW, newcomer=newcomer)
    assert NOW + 5 <= after.paused_until <= NOW + CONDUCT_RULES.longest_pause_s


@pytest.mark.parametrize(
    ("password", "credit", "new"),
    [("x", None, True), ("x", 0.0, True), ("x", 0.1, False), ("", None, False)],
)
def test_newcomer_is_a_stranger_without_a_valid_result(password, credit, new):
    row = SimpleNamespace(password_hash=password, total_credit=credit)
    assert is_newcomer(row) is new


def test_pause_says_until_when_and_ends():
    allowance = pause_of(NOW + 90, NOW)
    assert (allowance.apps, allowance.results, allowance.delay_s) == ((), 0, 90)
    assert "STO-E067" in allowance.messages[0]
    assert pause_of(NOW, NOW) is None


# ------------------------------------------------------------------ the engine


def turn_away(bench, user, how, **fields):
    """Let a host of `user` take one copy and not do it."""
    (copy,) = bench.fetch(user, room=1, **fields)
    if how == "abort":
        bench.report(user, copy, ResultState.ABORTED, 203)
    else:
        bench.finish(user, copy, b"optin")
    bench.settle()


def make(bench, count, **changes):
    names = [f"v_{number}" for number in range(count)]
    bench.engine.create_workunits([make_spec(name, **changes) for name in names])


@pytest.mark.parametrize("how", ["abort", "refuse"])
def test_newcomer_pauses_with_all_his_hosts_until_a_result_is_valid(bench, how):
    make(bench, 6, redundancy=Redundancy(min_quorum=1, target_results=1))
    bench.make_unverified(1)
    (kept,) = bench.fetch(1, room=1)
    for _ in range(3):
        turn_away(bench, 1, how)
    reply = bench.request(1, cpid="f" * 32, cpu_req_instances=1.0)
    assert reply.results == ()
    assert "STO-E067" in reply.messages[0]
    assert 0 < reply.request_delay <= 60
    bench.finish(1, kept, b"x")
    bench.settle()
    assert bench.fetch(1, room=1)


def test_known_account_may_turn_away_more(bench):
    make(bench, 4)
    for _ in range(3):
        turn_away(bench, 1, "abort")
    assert bench.fetch(1, room=1)


def test_pause_is_over_after_its_time(bench):
    make(bench, 4)
    bench.make_unverified(1)
    for _ in range(3):
        turn_away(bench, 1, "abort")
    assert bench.fetch(1) == []
    bench.pass_time(60)
    assert bench.fetch(1)


def test_aborts_of_many_accounts_use_up_no_total(bench):
    bench.engine.create_workunits([make_spec("w_1", redundancy=PAIR)])
    for user in range(10, 10 + PAIR.max_total):
        turn_away(bench, user, "abort")
    for user in (1, 2):
        bench.finish(user, *bench.fetch(user), b"x")
    bench.settle()
    assert bench.outcomes.kind("w_1") is OutcomeKind.CANONICAL


def test_newcomers_cannot_end_a_workunit_however_many_they_are(bench):
    bench.engine.create_workunits([make_spec("w_1", redundancy=PAIR)])
    crowd = range(10, 12 + refusal_cap(PAIR.max_total))
    for user in crowd:
        bench.make_unverified(user)
        for copy in bench.fetch(user):
            bench.report(user, copy, ResultState.ABORTED, 203)
        bench.settle()
    assert bench.outcomes.kind("w_1") is None
    for user in (1, 2):
        bench.finish(user, *bench.fetch(user), b"x")
    bench.settle()
    assert bench.outcomes.kind("w_1") is OutcomeKind.CANONICAL


def test_aborts_of_known_accounts_end_a_workunit_at_last(bench):
    bench.engine.create_workunits([make_spec("w_1", redundancy=PAIR)])
    for user in range(10, 11 + refusal_cap(PAIR.max_total)):
        turn_away(bench, user, "abort")
    assert bench.outcomes.kind("w_1") is OutcomeKind.TOO_MANY_REFUSALS


# ------------------------------------------------------------------ copied CPIDs

OWNER, COPIER, CPID = 1, 2, "c" * 32


@pytest.fixture
def copied(bench):
    """A bench on which somebody else shows the CPID of OWNER's host."""
    for user in (OWNER, COPIER):
        bench.request(user, cpid=CPID, dont_send_work=True)
    bench.engine.create_workunits([make_spec("w_1", redundancy=PAIR)])
    return bench


def test_copied_cpid_keeps_no_workunit_from_its_owner(copied):
    assert copied.fetch(COPIER, cpid=CPID)
    assert copied.fetch(OWNER, cpid=CPID)


def test_same_machine_under_a_second_account_gets_no_second_copy(copied):
    assert copied.fetch(OWNER, cpid=CPID)
    assert copied.fetch(COPIER, cpid=CPID) == []
    assert copied.fetch(3)


def test_host_cannot_change_its_cpid_to_that_of_a_stranger(bench):
    old = bench.request(COPIER, cpid="d" * 32, dont_send_work=True).host_id
    bench.request(OWNER, cpid=CPID, dont_send_work=True)
    bench.engine.create_workunits([make_spec("w_1", redundancy=PAIR)])
    assert bench.fetch(COPIER, cpid=CPID, host_id=old)
    assert bench.fetch(OWNER, cpid=CPID)


def test_lone_host_may_change_its_cpid(bench):
    old = bench.request(OWNER, cpid="d" * 32, dont_send_work=True).host_id
    bench.request(OWNER, cpid=CPID, host_id=old, dont_send_work=True)
    bench.engine.create_workunits([make_spec("w_1", redundancy=PAIR)])
    assert bench.fetch(OWNER, cpid=CPID)
    assert bench.fetch(COPIER, cpid=CPID) == []
