"""What an owner's word about a believed result costs its host, and what it does not."""

from dataclasses import replace

import pytest
from engine_bench import EmbeddedBench
from sqlalchemy import select

from stoilo.core.types import Redundancy
from stoilo.server.engines.embedded.accounts import host_trust
from stoilo.server.engines.embedded.accounts.host_trust import REJECTED
from stoilo.server.engines.embedded.accounts.quotas import DAY_S, RULES, load_quotas
from stoilo.server.engines.embedded.db import schema
from stoilo.server.engines.interface import OutcomeKind
from tests.support.engine import make_spec

ALONE = Redundancy(1, 1, 1, 1, 1)


PATIENCE = 4


@pytest.fixture
def bench(tmp_path, clock, engine_url, monkeypatch):
    monkeypatch.setattr(host_trust, "RULES", replace(RULES, patience=PATIENCE))
    monkeypatch.setattr(host_trust, "MOST_OF_ONE", PATIENCE // 2)
    made = EmbeddedBench(tmp_path / "engine", clock, database_url=engine_url)
    yield made
    made.engine.close()


def believe(bench, user, number=0):
    """Let a user's host give a result that is believed; return the workunit."""
    bench.engine.create_workunits([make_spec(f"w{number}_1", redundancy=ALONE)])
    (copy,) = bench.fetch(user)
    bench.finish(user, copy, b"1")
    bench.settle()
    return f"w{number}_1"


def test_rejected_result_ends_the_record_and_nothing_else(bench):
    bench.set_record(1, 12)
    name = believe(bench, 1)
    assert bench.engine.reject(name) == 1
    assert bench.record(1) == 0
    status = bench.engine.status(name)
    assert status.outcome is OutcomeKind.CANONICAL
    assert [copy.code for copy in status.results] == [REJECTED]


def test_record_stays_without_a_rejection(bench):
    bench.set_record(1, 12)
    believe(bench, 1)
    assert bench.record(1) == 12


def test_result_is_rejected_once_and_unknown_ones_never(bench):
    name = believe(bench, 1)
    found = [bench.engine.reject(one) for one in (name, name, "unknown_1")]
    assert found == [1, 0, 0]


def test_workunit_that_runs_cannot_be_rejected(bench):
    bench.engine.create_workunits([make_spec("w_1", redundancy=ALONE)])
    bench.fetch(1)
    assert bench.engine.reject("w_1") == 0


def owned_by_two(names):
    """Say that the workunits of even numbers belong to another account."""
    return {name: int(name[1:-2]) % 2 for name in names}


def believe_many(bench, count, first=0):
    return [believe(bench, 1, n) for n in range(first, first + count)]


def gets_work(bench):
    """Return whether the first user's host would get work now, and what it is told."""
    bench.engine.create_workunits([make_spec(f"more{bench.engine.now()}_1")])
    reply = bench.request(1, cpu_req_instances=4.0)
    return bool(reply.results), "".join(reply.messages)


def quota(bench):
    with bench.engine._database.read() as connection:
        host_id = connection.scalar(select(schema.host_apps.c.host_id))
        (found,) = load_quotas(connection, host_id).values()
    return found


def test_host_of_many_rejected_results_pauses_though_each_was_believed(bench):
    for name in believe_many(bench, PATIENCE):
        bench.engine.reject(name, owned_by_two)
    works, said = gets_work(bench)
    assert (works, "STO-E067" in said, "Many of" in said) == (False, True, True)
    assert bench.fetch(2)  # the negative control: the work is there


def test_host_of_a_few_rejected_results_goes_on(bench):
    for name in believe_many(bench, PATIENCE - 1):
        bench.engine.reject(name, owned_by_two)
    assert gets_work(bench)[0]


def test_one_owner_alone_lets_no_host_pause(bench):
    for name in believe_many(bench, PATIENCE):
        assert bench.engine.reject(name) == 1
    assert gets_work(bench)[0]


def test_result_followed_by_many_others_is_not_counted(bench, monkeypatch):
    monkeypatch.setattr(host_trust, "LOOKED_AT", 3)
    names = believe_many(bench, 4)
    bench.set_record(1, 12)
    assert bench.engine.reject(names[0], owned_by_two) == 0
    assert bench.record(1) == 12
    assert bench.engine.reject(names[1], owned_by_two) == 1


def test_result_of_another_day_is_not_counted(bench, clock):
    names = believe_many(bench, 2)
    clock.now += DAY_S
    assert bench.engine.reject(names[0], owned_by_two) == 0


def test_rejections_are_no_errors_of_the_row(bench):
    for name in believe_many(bench, PATIENCE):
        bench.engine.reject(name, owned_by_two)
    assert quota(bench).errors_in_row == 0


def test_pause_that_runs_does_not_grow(bench, clock):
    names = believe_many(bench, PATIENCE + 1)
    for name in names[:-1]:
        bench.engine.reject(name, owned_by_two)
    until = quota(bench).paused_until
    clock.now += 1
    bench.engine.reject(names[-1], lambda found: dict.fromkeys(found[-1:], 9))
    assert quota(bench).paused_until == until > clock()


def test_owner_who_has_said_it_often_begins_no_further_pause(bench, clock):
    names = believe_many(bench, PATIENCE + 1)
    for name in names[:-1]:
        bench.engine.reject(name, owned_by_two)
    clock.now += RULES.first_pause_s + 1
    bench.engine.reject(names[-1], owned_by_two)
    assert quota(bench).paused_until <= clock()
