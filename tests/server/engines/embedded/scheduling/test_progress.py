"""What hosts say of unfinished results: shown for their own, bounded, forgotten at the end."""

from __future__ import annotations

import pytest
from engine_bench import EmbeddedBench

from stoilo.core.boinc.messages import OtherResult
from stoilo.server.engines.embedded.scheduling.progress import Progress
from tests.support.engine import make_spec


@pytest.fixture
def bench(tmp_path, clock, engine_url):
    made = EmbeddedBench(tmp_path / "engine", clock, database_url=engine_url)
    made.engine.create_workunits([make_spec("w_1")])
    yield made
    made.engine.close()


def say(bench, user, name, fraction=0.4, cpu_s=12.5):
    bench.request(user, other_results=(OtherResult(name, fraction, cpu_s),))


def shown(bench):
    return {
        (one.fraction_done, one.cpu_s) for one in bench.engine.status("w_1").results
    }


def test_host_s_word_on_its_own_copy_is_shown(bench):
    (result,) = bench.request(1, cpu_req_instances=1.0).results
    assert shown(bench) == {(0.0, 0.0)}
    say(bench, 1, result.name)
    assert shown(bench) == {(0.0, 0.0), (0.4, 12.5)}
    say(bench, 1, result.name, 0.0, 0.0)  # a call that does not say it again
    assert shown(bench) == {(0.0, 0.0), (0.4, 12.5)}


def test_word_on_another_s_copy_is_not(bench):
    (result,) = bench.request(1, cpu_req_instances=1.0).results
    say(bench, 2, result.name)
    assert shown(bench) == {(0.0, 0.0)}


def test_few_are_remembered_the_newest():
    progress, names = Progress(most=2), ["a", "b", "c"]
    for name in names:
        progress.note([OtherResult(name, 0.5)], names)
    assert [progress.find(name) is None for name in names] == [True, False, False]
