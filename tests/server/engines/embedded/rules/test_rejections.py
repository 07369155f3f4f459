"""What an owner's word about a believed result costs its host, and what it does not."""

import pytest
from engine_bench import EmbeddedBench

from stoilo.core.types import Redundancy
from stoilo.server.engines.embedded.rules.quotas import RULES
from stoilo.server.engines.embedded.rules.rejections import REJECTED
from stoilo.server.engines.interface import OutcomeKind
from stoilo.testing.engine import make_spec

ALONE = Redundancy(1, 1, 1, 1, 1)


@pytest.fixture
def bench(tmp_path, clock, engine_url):
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
    assert [copy.code for copy in status.copies] == [REJECTED]


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


def test_host_of_many_rejected_results_pauses_though_each_was_believed(bench):
    for n in range(RULES.patience):
        bench.engine.reject(believe(bench, 1, n))
    bench.engine.create_workunits([make_spec("more_1", redundancy=ALONE)])
    reply = bench.request(1, cpu_req_instances=4.0)
    assert (reply.results, "STO-E067" in reply.messages[0]) == ((), True)
    assert bench.fetch(2)  # the negative control: the work is there


def test_host_of_a_few_rejected_results_goes_on(bench):
    for n in range(RULES.patience - 1):
        bench.engine.reject(believe(bench, 1, n))
    assert bench.engine.reject(believe(bench, 1, 100)) == 1
