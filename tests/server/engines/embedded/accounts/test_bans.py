"""What a banned computer still holds counts for nobody, on either database."""

from __future__ import annotations

import pytest
from engine_bench import EmbeddedBench
from sqlalchemy import func, select

from stoilo.core.boinc.messages import ReportedResult, ResultState
from stoilo.core.errors import DeniedError
from stoilo.core.types import Redundancy
from stoilo.server.engines.embedded.db import schema
from stoilo.server.engines.interface import ResultOutcome
from tests.support.engine import make_spec

THREE = Redundancy(min_quorum=2, target_results=3, max_total=5)
SLOW = 3


@pytest.fixture
def bench(tmp_path, clock, engine_url):
    made = EmbeddedBench(tmp_path / "engine", clock, database_url=engine_url)
    made.engine.create_workunits([make_spec("w_1", redundancy=THREE)])
    yield made
    made.engine.close()


def end_without(bench, user):
    """Let the workunit find its quorum while `user` is still at it."""
    (copy,) = bench.fetch(user)
    for other in (1, 2):
        bench.finish(other, *bench.fetch(other), b"x")
    bench.settle()
    assert bench.outcomes.kind("w_1").value == "canonical"
    return copy


def host_of(bench, user):
    with bench.engine._database.read() as connection:
        return bench.host_id(connection, user)


def ban(bench, user, how):
    roster, now = bench.engine.roster, bench.clock()
    if how == "host":
        roster.ban_host(host_of(bench, user), now)
    else:
        roster.ban_account(f"u{user}@example.org", now)


def credit(bench, user):
    results = schema.results
    query = select(func.count()).where(
        results.c.host_id == host_of(bench, user), results.c.granted.is_not(None)
    )
    with bench.engine._database.read() as connection:
        return connection.scalar(query)


def test_late_result_of_an_honest_host_is_paid_and_makes_its_record(bench):
    bench.finish(SLOW, end_without(bench, SLOW), b"x")
    bench.settle()
    assert (credit(bench, SLOW), bench.record(SLOW)) == (1, 1)


@pytest.mark.parametrize("how", ["host", "account"])
def test_copy_that_runs_when_its_host_is_banned_is_not_taken(bench, how):
    copy = end_without(bench, SLOW)
    ban(bench, SLOW, how)
    with pytest.raises(DeniedError, match="STO-E014"):
        bench.upload(copy, b"x")
    bench.report(SLOW, copy)
    bench.settle()
    assert (credit(bench, SLOW), bench.record(SLOW)) == (0, 0)


@pytest.mark.parametrize("how", ["host", "account"])
def test_result_that_waits_when_its_host_is_banned_is_not_paid(bench, how):
    bench.finish(SLOW, end_without(bench, SLOW), b"x")
    ban(bench, SLOW, how)
    bench.settle()
    assert (credit(bench, SLOW), bench.record(SLOW)) == (0, 0)
    (late,) = [
        copy
        for copy in bench.engine.status("w_1").results
        if copy.outcome is ResultOutcome.INVALID
    ]
    assert late.code == "STO-E041"
    assert list((bench.directory / "uploads").iterdir()) == []


def test_upload_before_the_ban_and_report_after_it_count_for_nothing(bench):
    copy = end_without(bench, SLOW)
    bench.upload(copy, b"x")
    ban(bench, SLOW, "host")
    done = ReportedResult(copy, ResultState.UPLOADED, 0)
    assert bench.request(SLOW, results=(done,)).acks == (copy,)
    bench.settle()
    assert (credit(bench, SLOW), bench.record(SLOW)) == (0, 0)


def test_what_was_found_valid_before_the_ban_stays(bench):
    end_without(bench, SLOW)
    ban(bench, 1, "host")
    bench.settle()
    assert credit(bench, 1) == 1
    assert bench.outcomes.calls["w_1"] == 1
