from __future__ import annotations

import pytest
from engine_bench import EmbeddedBench
from hypothesis import given
from hypothesis import strategies as st

from stoilo.core.boinc.messages import ResultState
from stoilo.core.types import Redundancy
from stoilo.server.engines.embedded.accounts import quotas
from stoilo.server.engines.embedded.accounts.quotas import (
    Quota,
    QuotaRules,
    after_error,
    after_issue,
    after_success,
    room_in,
)
from tests.support.engine import make_spec

NOW = 1_800_000_000
DAY = 86_400
SMALL = QuotaRules(per_cpu=8, most_cpus=4, patience=3, longest_pause_s=600)
EVENTS = st.lists(st.sampled_from(["error", "success", "issue"]), max_size=60)


def play(events, rules=SMALL):
    quota, now = Quota(rules.per_cpu), NOW
    for event in events:
        now += 1
        if event == "error":
            quota = after_error(quota, now, rules)
        elif event == "success":
            quota = after_success(quota, rules)
        else:
            quota = after_issue(quota, 1, now)
        yield quota, now


# ------------------------------------------------------------------ arithmetic


@given(EVENTS, st.integers(-5, 10_000))
def test_limit_stays_between_one_and_the_most(events, ncpus):
    for quota, now in play(events):
        assert 1 <= quota.per_cpu <= SMALL.per_cpu
        assert 0 <= room_in(quota, ncpus, now, SMALL) <= SMALL.per_cpu * SMALL.most_cpus
        assert quota.paused_until <= now + SMALL.longest_pause_s


@given(EVENTS)
def test_one_valid_result_ends_a_pause(events):
    for quota, now in play([*events, "success"]):
        last = quota, now
    assert room_in(last[0], 1, last[1] + DAY, SMALL) > 0
    assert last[0].errors_in_row == last[0].paused_until == 0


@given(EVENTS)
def test_every_host_gets_something_again_next_day(events):
    for quota, now in play([*events, "issue"]):
        last = quota, now
    assert room_in(last[0], 1, last[1] + 2 * DAY, SMALL) >= 1


def test_errors_take_one_each_and_successes_double():
    quota, limits = Quota(8), []
    for _ in range(5):
        quota = after_error(quota, NOW, SMALL)
    for _ in range(3):
        limits.append(quota.per_cpu)
        quota = after_success(quota, SMALL)
    assert [*limits, quota.per_cpu] == [3, 6, 8, 8]


def test_pauses_double_up_to_the_longest():
    quota, pauses = Quota(8), []
    for _ in range(8):
        quota = after_error(quota, NOW, SMALL)
        pauses.append(max(0, quota.paused_until - NOW))
    assert pauses == [0, 0, 60, 120, 240, 480, 600, 600]


def test_issued_copies_count_for_their_day_alone():
    quota = after_issue(after_issue(Quota(8), 3, NOW), 4, NOW)
    assert room_in(quota, 1, NOW, SMALL) == 1
    assert room_in(quota, 2, NOW, SMALL) == 9
    assert room_in(quota, 1, NOW + DAY, SMALL) == 8


# ------------------------------------------------------------------ in the project


@pytest.fixture
def bench(tmp_path, clock, engine_url):
    made = EmbeddedBench(tmp_path / "engine", clock, database_url=engine_url)
    yield made
    made.engine.close()


def host_of(bench):
    (host,) = bench.engine.roster.list_hosts()
    return host.host_id


def fail_often(bench, user, times, level="pure"):
    bench.engine.create_workunits(
        [make_spec(f"{level}{n}_1", app=level) for n in range(times)]
    )
    for copy in bench.fetch(user, level=level, room=times):
        bench.fail(user, copy)
    bench.settle()


def test_host_that_reports_garbage_pauses_is_told_and_others_go_on(bench, clock):
    fail_often(bench, 1, quotas.RULES.patience)
    reply = bench.request(1, cpu_req_instances=4.0)
    assert reply.results == ()
    assert "STO-E067" in reply.messages[0]
    assert 0 < reply.request_delay <= quotas.RULES.first_pause_s
    assert bench.fetch(2)  # the negative control: the work is there
    clock.now += quotas.RULES.first_pause_s + 1
    assert bench.request(1, cpu_req_instances=1.0).messages == ()


def test_paused_host_is_not_told_to_allow_more(bench):
    fail_often(bench, 1, quotas.RULES.patience)
    bench.engine.create_workunits([make_spec("other_1")])
    reply = bench.request(1, cpu_req_instances=8.0, rpc_seqno=200)
    (message,) = reply.messages
    assert "STO-E067" in message


def test_pause_is_for_one_app(bench):
    fail_often(bench, 1, quotas.RULES.patience, level="numeric")
    bench.engine.create_workunits([make_spec("other_1")])
    reply = bench.request(1, level="numeric", cpu_req_instances=8.0)
    assert [result.workunit for result in reply.results] == ["other_1"]
    assert reply.request_delay == 0.0


def test_fewer_errors_change_nothing_that_is_seen(bench):
    fail_often(bench, 1, quotas.RULES.patience - 1)
    bench.engine.create_workunits([make_spec("next_1")])
    assert bench.fetch(1) == ["next_1_0"]


@pytest.mark.parametrize("body", [b"optin", b"fatal"])
def test_refusals_and_validators_faults_are_not_the_hosts(bench, body):
    bench.engine.create_workunits([make_spec(f"w{n}_1") for n in range(12)])
    for copy in bench.fetch(1, room=12):
        bench.finish(1, copy, body)
    bench.settle()
    assert bench.request(1, cpu_req_instances=1.0).messages == ()


@pytest.mark.parametrize("exit_status", [202, 203])
def test_host_that_aborts_whatever_it_gets_pauses(bench, exit_status):
    names = [f"w{n}_1" for n in range(12)]
    bench.engine.create_workunits([make_spec(name) for name in names])
    for copy in bench.fetch(1, room=12):
        bench.report(1, copy, ResultState.ABORTED, exit_status)
    reply = bench.request(1, cpu_req_instances=1.0)
    assert "STO-E067" in reply.messages[0]
    assert reply.results == ()


def test_copies_that_nobody_needs_may_be_aborted_without_end(bench):
    single = Redundancy(min_quorum=1, target_results=2)
    specs = [make_spec(f"w{n}_1", redundancy=single) for n in range(12)]
    bench.engine.create_workunits(specs)
    copies = bench.fetch(1, room=12)
    for copy in bench.fetch(2, room=12):
        bench.finish(2, copy, b"x")
    bench.settle()
    for copy in copies:
        bench.report(1, copy, ResultState.ABORTED, 202)
    assert bench.request(1, cpu_req_instances=1.0).messages == ()


ONE = Redundancy(min_quorum=1, target_results=1)


def refuse(bench, rounds, prefix="r"):
    """Let host 1 refuse eight copies at a time."""
    for number in range(rounds):
        names = [f"{prefix}x{number}x{n}_1" for n in range(8)]
        bench.engine.create_workunits([make_spec(name) for name in names])
        for copy in bench.fetch(1, room=8):
            bench.finish(1, copy, b"optin")
        bench.settle()


def test_host_that_refuses_whatever_it_gets_pauses(bench):
    refuse(bench, 3)
    reply = bench.request(1, cpu_req_instances=1.0)
    assert any("STO-E067" in message for message in reply.messages)
    assert reply.results == ()
    assert bench.fetch(2)


def test_host_that_does_other_things_too_may_refuse(bench):
    for number in range(3):
        refuse(bench, 1, f"r{number}")
        spec = make_spec(f"other{number}_1", redundancy=ONE)
        bench.engine.create_workunits([spec])
        bench.finish(1, *bench.fetch(1, room=1), b"x")
        bench.settle()
    assert bench.request(1, cpu_req_instances=1.0).messages == ()


def test_outvoted_invalid_and_late_copies_count(bench, clock):
    bench.engine.create_workunits([make_spec(f"w{n}_1") for n in range(10)])
    copies = bench.fetch(1, room=10)
    for copy in copies[:5]:
        bench.finish(1, copy, b"bad")
    bench.settle()
    clock.now += 10**8
    bench.settle()
    with bench.engine._database.read() as connection:
        known = quotas.load_quotas(connection, host_of(bench))
    assert known["pure"].errors_in_row == 10


def test_day_of_a_host_ends_with_its_quota_and_says_so(bench, monkeypatch):
    bench.request(1)
    host = host_of(bench)
    rules = QuotaRules(per_cpu=2)
    monkeypatch.setattr(quotas, "RULES", rules)
    with bench.engine._database.write() as connection:
        quotas.note_results(connection, host, ["pure"] * 2, {}, NOW)
        known = quotas.load_quotas(connection, host)
    allowance = quotas.allowed_today(known, ("pure",), 1, NOW, rules)
    assert (allowance.apps, allowance.results) == ((), 0)
    assert "STO-E067" in allowance.messages[0]
    assert 0 < allowance.delay_s <= DAY
