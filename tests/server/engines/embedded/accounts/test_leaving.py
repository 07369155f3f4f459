"""Who leaves gets no work until he comes back; who is erased is in no row any more."""

from __future__ import annotations

import pytest
from engine_bench import EmbeddedBench
from sqlalchemy import select

from stoilo.core.boinc.messages import HostInfo, ReportedResult, ResultState
from stoilo.core.errors import DeniedError
from stoilo.core.types import Redundancy
from stoilo.server.engines.embedded.accounts.leaving import LEFT_DELAY_S
from stoilo.server.engines.embedded.db import schema
from stoilo.server.engines.interface import ResultOutcome
from stoilo.server.operations.moving import read_hosts, read_users
from tests.support.engine import make_spec

PAIR = Redundancy(min_quorum=2, target_results=2, max_total=4)
EMAIL = "u1@example.org"


@pytest.fixture
def bench(tmp_path, clock, engine_url):
    made = EmbeddedBench(tmp_path / "engine", clock, database_url=engine_url)
    made.engine.create_workunits([make_spec("w_1", redundancy=PAIR)])
    yield made
    made.engine.close()


@pytest.fixture
def roster(bench):
    return bench.engine.roster


def account(bench, email=EMAIL):
    return bench.engine.accounts.ensure(email, bench.clock())


def rows(bench, table):
    with bench.engine._database.read() as connection:
        return connection.execute(select(table)).all()


def test_who_left_gets_nothing_until_he_is_back(bench, roster):
    user = account(bench).user_id
    roster.leave(user, bench.clock())
    reply = bench.request(1, cpu_req_instances=8.0)
    assert (reply.results, reply.request_delay) == ((), LEFT_DELAY_S)
    assert "has left the project" in reply.messages[0]
    roster.leave(user, bench.clock(), back=True)
    assert bench.fetch(1)  # control


def test_what_he_held_when_he_left_still_counts(bench, roster):
    (copy,) = bench.fetch(1)
    roster.leave(account(bench).user_id, bench.clock())
    bench.finish(1, copy, b"x")
    bench.finish(2, *bench.fetch(2), b"x")
    bench.settle()
    assert bench.outcomes.kind("w_1").value == "canonical"
    assert not bench.fetch(1)  # a valid result does not bring him back


def test_runs_are_those_of_his_own_computers(bench, roster):
    for user in (1, 2):
        bench.finish(user, *bench.fetch(user), b"x")
    bench.settle()
    (run,) = roster.list_runs(account(bench).user_id, 9, 0)
    assert (run.workunit, run.app, run.outcome) == ("w_1", "pure", "success")
    assert run.granted is not None
    assert roster.list_runs(account(bench).user_id, 9, 1) == ()
    assert roster.list_runs(account(bench, "u3@example.org").user_id, 9, 0) == ()


def test_erased_account_and_its_computers_are_in_no_table(bench, roster):
    for user in (1, 2):
        held = bench.fetch(user, host=HostInfo(f"pc-{user}"))
        bench.finish(user, *held, b"x")
    bench.settle()
    roster.erase(account(bench).user_id, bench.clock())
    text = repr([rows(bench, table) for table in schema.metadata.sorted_tables])
    gone = {EMAIL, "pc-1", f"{1:032x}"}
    assert {one for one in gone if one in text} == set()
    assert "u2@example.org" in text  # control
    assert f"{2:032x}" in text


def test_erased_account_is_listed_no_more(bench, roster):
    keep = account(bench, "u2@example.org").user_id
    roster.erase(account(bench).user_id, bench.clock())
    assert [one.user_id for one in roster.list_accounts()] == [keep]


@pytest.mark.parametrize("kind", ["key", "weak_key"])
def test_keys_of_before_open_nothing_not_even_after_the_address_comes_again(
    bench, roster, kind
):
    before = account(bench)
    roster.erase(before.user_id, bench.clock())
    assert not bench.engine.accounts.knows(getattr(before, kind))
    for _ in range(2):  # and again
        after = account(bench)
        assert not bench.engine.accounts.knows(getattr(before, kind))
        assert bench.engine.accounts.knows(getattr(after, kind))  # control
        roster.erase(after.user_id, bench.clock())
        before = after


def test_password_of_before_opens_nothing(bench, roster):
    accounts = bench.engine.accounts
    made = accounts.create("new@example.org", "ab" * 16, bench.clock())
    assert accounts.find("new@example.org", "ab" * 16)  # control
    roster.erase(made.user_id, bench.clock())
    with pytest.raises(DeniedError, match="STO-E016"):
        accounts.find("new@example.org", "ab" * 16)


def test_what_an_erased_host_held_goes_to_another(bench, roster):
    bench.fetch(1)
    bench.finish(2, *bench.fetch(2), b"x")
    roster.erase(account(bench).user_id, bench.clock())
    bench.clock.now += 1
    bench.settle()
    outcomes = {one.outcome for one in rows(bench, schema.results)}
    assert ResultOutcome.NO_REPLY.value in outcomes
    bench.finish(3, *bench.fetch(3), b"x")
    bench.settle()
    assert bench.outcomes.kind("w_1").value == "canonical"


def test_erased_host_that_reports_is_nobody(bench, roster):
    (copy,) = bench.fetch(1)
    key = account(bench).weak_key
    roster.erase(account(bench).user_id, bench.clock())
    report = ReportedResult(copy, ResultState.UPLOADED, 0)
    reply = bench.request(9, key=key, results=(report,))
    assert reply.acks == ()
    assert rows(bench, schema.results)[0].received_at == 0


def test_erased_account_and_its_hosts_do_not_move_to_another_server(bench, roster):
    for user in (1, 2):
        bench.request(user, dont_send_work=True)
    keep = account(bench, "u2@example.org").user_id
    roster.erase(account(bench).user_id, bench.clock())
    with bench.engine._database.read() as connection:
        users = read_users(connection, bench.engine.accounts, {}, weak=False)
        hosts = read_hosts(connection)
    assert [one["id"] for one in users] == [keep]
    assert {one["userid"] for one in hosts} == {keep}


def test_who_left_is_not_counted_among_those_who_could_help(bench, roster):
    bench.request(2, dont_send_work=True)
    bench.request(1, dont_send_work=True)
    before = bench.engine.status("w_1").users_attached
    roster.leave(account(bench).user_id, bench.clock())
    assert (before, bench.engine.status("w_1").users_attached) == (2, 1)


def test_accounts_of_before_take_part_after_the_upgrade(bench):
    account(bench)
    with bench.engine._database.write() as connection:
        connection.exec_driver_sql("ALTER TABLE engine_user DROP COLUMN left_at")
        connection.exec_driver_sql(
            "UPDATE engine_version SET version_num = 'engine0002'"
        )
    bench.restart()
    assert bench.fetch(1)
