from __future__ import annotations

import pytest
from engine_bench import EmbeddedBench

from stoilo.core.boinc.messages import HostInfo
from tests.support.engine import make_spec

GIB = 1024**3


@pytest.fixture
def bench(tmp_path, clock, engine_url):
    made = EmbeddedBench(tmp_path / "engine", clock, database_url=engine_url)
    yield made
    made.engine.close()


def ask(bench, memory=0.0, disk=0.0):
    host = HostInfo(memory_bytes=memory, disk_free_bytes=disk)
    return bench.request(1, cpu_req_instances=1.0, host=host).workunits


@pytest.fixture
def large(bench):
    spec = make_spec("w_1", memory_bound=GIB, disk_bound=2 * GIB)
    bench.engine.create_workunits([spec])


@pytest.mark.usefixtures("large")
def test_bounds_reach_the_host(bench):
    (workunit,) = ask(bench, GIB, 2 * GIB)
    assert (workunit.memory_bound, workunit.disk_bound) == (GIB, 2 * GIB)


@pytest.mark.usefixtures("large")
@pytest.mark.parametrize(("memory", "disk"), [(GIB - 1, 9 * GIB), (9 * GIB, GIB)])
def test_host_without_room_gets_no_copy(bench, memory, disk):
    assert ask(bench, memory, disk) == ()


@pytest.mark.usefixtures("large")
def test_host_that_says_nothing_of_itself_gets_copies(bench):
    assert len(ask(bench)) == 1


@pytest.mark.usefixtures("large")
def test_workunit_that_needs_little_passes_one_that_needs_much(bench):
    bench.engine.create_workunits([make_spec("w_2")])
    (workunit,) = ask(bench, memory=1.0, disk=1.0)
    assert workunit.name == "w_2"
