from __future__ import annotations

import pytest
from engine_bench import EmbeddedBench

from stoilo.core.boinc.messages import ClientVersion, HostInfo, SchedulerRequest
from stoilo.core.types import Redundancy
from stoilo.server.engines.embedded.scheduling import hosts
from stoilo.server.engines.embedded.scheduling.authenticate import find_visitor
from stoilo.server.engines.embedded.scheduling.hosts import HostActivity
from tests.support.engine import make_spec

SLOW = Redundancy(delay_bound_s=10**7)
INFO = HostInfo("anna-pc", "Intel", "i7", "", 1e9, 8e9, 1e11, "Linux", "6.1")


@pytest.fixture
def bench(tmp_path, clock, engine_url):
    made = EmbeddedBench(tmp_path / "engine", clock, database_url=engine_url)
    yield made
    made.engine.close()


def known(bench):
    return bench.engine.roster.list_hosts()


def call(bench, user=1, **fields):
    return bench.request(user, client=ClientVersion(7, 20, 5), **fields)


def test_what_a_host_says_is_kept_and_bounded(bench):
    long = HostInfo(domain_name="x" * 10_000, os_name="y" * 10_000)
    call(bench, host=long, platforms=("z" * 10_000,))
    (host,) = known(bench)
    assert len(host.domain_name) == len(host.os_name) == hosts.TEXT_CHARS
    assert (len(host.platform), host.client) == (64, "7.20.5")


def test_changed_description_replaces_the_old_one(bench):
    call(bench, host=INFO)
    call(bench, host=HostInfo(domain_name="new", os_name="Linux"))
    assert [host.domain_name for host in known(bench)] == ["new"]


def test_silent_call_forgets_nothing(bench):
    call(bench, host=INFO)
    bench.request(1)
    assert [host.domain_name for host in known(bench)] == ["anna-pc"]


def test_figures_that_always_change_are_written_at_their_pace(bench, clock):
    call(bench, host=INFO)
    more = HostInfo("anna-pc", "Intel", "i7", "", 1e9, 9e9, 1e11, "Linux", "6.1")
    call(bench, host=more)
    assert known(bench)[0].memory_bytes == 8e9
    clock.now += hosts.RECORD_EVERY_S
    call(bench, host=more)
    assert known(bench)[0].memory_bytes == 9e9


def test_same_cpid_is_the_same_host_and_another_users_is_not(bench):
    for user in (1, 1, 2):
        call(bench, user, cpid="c" * 32, host_id=0)
    assert [host.email for host in known(bench)] == [
        "u1@example.org",
        "u2@example.org",
    ]


def test_copied_state_of_a_banned_host_is_banned(bench, clock):
    call(bench, rpc_seqno=9)
    call(bench, 2)
    first = known(bench)[0].host_id
    bench.engine.roster.ban_host(first, clock())
    reply = call(bench, host_id=first, rpc_seqno=3)
    assert "STO-E041" in reply.messages[0]
    assert [host.banned for host in known(bench)] == [True, False, True]


@pytest.mark.parametrize(("last_call", "copied"), [(9, False), (11, True)])
def test_call_that_its_successor_overtook_is_no_copied_state(bench, last_call, copied):
    """Number 10 came when 9 was the last, and waited while 11 was answered."""
    call(bench, rpc_seqno=11)
    host = known(bench)[0].host_id
    key = bench.engine.accounts.ensure("u1@example.org", bench.clock()).key
    late = SchedulerRequest(key, host, 10, f"{1:032x}")
    with bench.engine._database.write() as connection:
        visitor = find_visitor(connection, late)
        found = hosts.find_host(connection, visitor, late, last_call, bench.clock())
    assert (found.id != host) is copied


def test_number_of_a_host_falls_only_when_it_counts_anew():
    presence = HostActivity()
    for number, anew in ((11, False), (10, False)):
        presence.note_call(1, number, anew=anew)
    assert presence.last_call(1) == 11
    presence.note_call(1, 2, anew=True)
    assert presence.last_call(1) == 2


def test_banned_hosts_work_goes_to_others_and_its_reports_are_forgotten(bench, clock):
    bench.engine.create_workunits([make_spec("w_1")])
    (copy,) = bench.fetch(1)
    bench.upload(copy, b"x")
    bench.engine.roster.ban_host(known(bench)[0].host_id, clock())
    bench.report(1, copy)
    bench.settle()
    assert bench.engine.status("w_1").results[0].outcome == "invalid"
    assert bench.fetch(2)


def test_account_has_a_number_of_hosts(bench, monkeypatch):
    monkeypatch.setattr(hosts, "MAX_HOSTS", 2)
    replies = [call(bench, cpid=f"{n:032x}", rpc_seqno=1) for n in range(3)]
    assert [reply.messages != () for reply in replies] == [False, False, True]
    assert "STO-E017" in replies[2].messages[0]


def test_hosts_that_are_gone_make_room_for_others(bench, clock, monkeypatch):
    monkeypatch.setattr(hosts, "MAX_HOSTS", 2)
    bench.engine.create_workunits([make_spec("w_1", redundancy=SLOW)])
    assert bench.fetch(1)  # keeps its copy
    call(bench, cpid="a" * 32)
    assert "STO-E017" in call(bench, cpid="b" * 32).messages[0]
    clock.now += hosts.IN_USE_S + 1
    assert call(bench, cpid="b" * 32).messages == ()
    assert "STO-E017" in call(bench, cpid="c" * 32).messages[0]


def test_banned_host_stays_away_for_a_day(bench, clock):
    call(bench)
    bench.engine.roster.ban_host(known(bench)[0].host_id, clock())
    reply = call(bench, cpu_req_instances=1.0)
    assert (reply.request_delay, reply.next_rpc_delay) == (86_400.0, 0.0)
    assert bench.request(1, own_program=False).request_delay == 86_400.0
    assert call(bench, 2).request_delay == 0.0
