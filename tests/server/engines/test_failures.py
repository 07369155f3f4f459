"""Hosts whose tasks all fail wait longer and longer; nobody else does."""

from __future__ import annotations

import pytest
from engine_bench import EmbeddedBench
from hypothesis import given
from hypothesis import strategies as st

from stoilo.executor.messages import ReportedResult, ResultState
from stoilo.server.engines.embedded.failures import (
    LONGEST_S,
    PATIENCE,
    SHORTEST_S,
    delay_after,
    has_failed,
)
from stoilo.testing.engine import make_spec

FAILED = ReportedResult("nobodys_0", ResultState.COMPUTE_ERROR, 1)
DONE = ReportedResult("nobodys_1", ResultState.UPLOADED)


@pytest.fixture
def bench(tmp_path, clock):
    made = EmbeddedBench(tmp_path / "engine", clock)
    made.engine.create_workunits([make_spec(f"w_{n}") for n in range(4)])
    yield made
    made.engine.close()


def ask(bench, *reports, user=1):
    return bench.request(user, results=reports, cpu_req_instances=1.0)


@given(st.integers(0, 5000))
def test_delay_grows_and_is_bounded(failures):
    assert 0 <= delay_after(failures) <= delay_after(failures + 1) <= LONGEST_S


@pytest.mark.parametrize(
    ("state", "status", "failed"),
    [(5, 0, False), (5, 1, True), (3, 195, True), (1, -186, True), (6, 203, False)],
)
def test_what_counts_as_a_failure(state, status, failed):
    assert has_failed(ReportedResult("a", state, status)) is failed


def test_host_whose_tasks_all_fail_is_told_to_wait(bench):
    reply = ask(bench, *[FAILED] * PATIENCE)
    assert (reply.results, reply.request_delay) == ((), SHORTEST_S)
    assert reply.next_rpc_delay == 0
    assert "failed" in reply.messages[0]
    assert reply.acks == (FAILED.name,)


def test_other_hosts_do_not_wait(bench):
    ask(bench, *[FAILED] * PATIENCE)
    assert ask(bench, user=2).results


def test_fewer_failures_are_forgiven(bench):
    assert ask(bench, *[FAILED] * (PATIENCE - 1)).results


def test_wait_ends_by_time_and_grows_with_the_next_failure(bench):
    ask(bench, *[FAILED] * PATIENCE)
    bench.pass_time(SHORTEST_S)
    assert ask(bench).results
    assert ask(bench, FAILED).request_delay == 2 * SHORTEST_S


def test_success_ends_the_wait(bench):
    ask(bench, *[FAILED] * PATIENCE)
    reply = ask(bench, DONE)
    assert reply.results
    assert reply.request_delay == 0


def test_tasks_that_the_project_ended_do_not_count(bench):
    aborted = ReportedResult("a_0", ResultState.ABORTED, 202)
    assert ask(bench, *[aborted] * 9).results


def test_wait_outlives_a_restart(bench):
    ask(bench, *[FAILED] * PATIENCE)
    bench.restart()
    assert ask(bench).results == ()
