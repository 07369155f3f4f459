from __future__ import annotations

import pytest
from engine_bench import EmbeddedBench

from stoilo.core.boinc.messages import HostInfo, ReportedResult, ResultState
from stoilo.core.types import Redundancy
from tests.support.engine import make_spec

ONCE = Redundancy(min_quorum=1, target_results=1, max_error=1, max_total=3)


@pytest.fixture
def bench(tmp_path, clock, engine_url):
    made = EmbeddedBench(tmp_path / "engine", clock, database_url=engine_url)
    yield made
    made.engine.close()


@pytest.fixture
def copy(bench):
    bench.engine.create_workunits([make_spec("w_1", redundancy=ONCE)])
    (name,) = bench.fetch(1)
    bench.upload(name, b"answer")
    return name


def report(bench, copy, cpu_s, *, user=1, flops=0.0):
    said = ReportedResult(copy, ResultState.UPLOADED, cpu_s=cpu_s)
    bench.request(user, results=(said,), host=HostInfo(fpops=flops))


def taken(bench):
    bench.settle()
    (result,) = bench.outcomes.outcomes["w_1"].valid
    return result.cpu_s, result.flops


def test_outcome_says_what_the_valid_copy_took(bench, copy):
    report(bench, copy, 12.5, flops=3e9)
    assert taken(bench) == (12.5, 3e9)


def test_first_report_stays_when_the_acknowledgement_was_lost(bench, copy):
    report(bench, copy, 12.5)
    report(bench, copy, 99.0)
    assert taken(bench) == (12.5, 0.0)


def test_report_of_somebody_elses_copy_counts_for_nothing(bench, copy):
    report(bench, copy, 99.0, user=2)
    report(bench, copy, 12.5)
    assert taken(bench) == (12.5, 0.0)


def test_elapsed_time_stands_for_an_unmeasured_one(bench, copy):
    said = ReportedResult(copy, ResultState.UPLOADED, elapsed_s=3.5)
    bench.request(1, results=(said,))
    assert taken(bench) == (3.5, 0.0)


def test_host_that_says_no_time_gives_none(bench, copy):
    report(bench, copy, 0.0)
    assert taken(bench) == (0.0, 0.0)
