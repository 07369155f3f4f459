"""A disk that refuses: clear errors, nothing half, and it goes on when there is room."""

from __future__ import annotations

import resource
from contextlib import contextmanager

import pytest
from engine_bench import EmbeddedBench

from stoilo.core.errors import InternalError
from tests.support.engine import make_spec

LIMIT = 256 * 1024


@pytest.fixture
def bench(tmp_path, clock):
    made = EmbeddedBench(tmp_path / "engine", clock)
    yield made
    made.engine.close()


@contextmanager
def largest_file(size):
    """No file of this process may grow beyond `size` bytes, as if the disk were full."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)


def pages(bench, most):
    with bench.engine._database.write() as connection:
        connection.exec_driver_sql(f"PRAGMA max_page_count = {most}")


def set_query_only(bench, value):
    connection = bench.engine._database._writer.raw_connection()
    connection.cursor().execute(f"PRAGMA query_only = {value}")
    connection.close()


def fill(bench, made):
    for number in range(100):
        names = [f"w{number}_{part}" for part in range(10)]
        bench.engine.create_workunits([make_spec(name) for name in names])
        made += names


def test_full_database_refuses_whole_batches_and_recovers(bench):
    with bench.engine._database.read() as connection:
        used = connection.exec_driver_sql("PRAGMA page_count").scalar()
    pages(bench, used + 40)
    made = []
    with pytest.raises(InternalError, match="STO-R030"):
        fill(bench, made)
    last = [f"w{len(made) // 10}_{part}" for part in range(10)]
    assert all(bench.engine.status(name) is not None for name in made)
    assert all(bench.engine.status(name) is None for name in last)
    pages(bench, 2**30)
    bench.engine.create_workunits([make_spec(name) for name in last])
    assert all(bench.engine.status(name) is not None for name in last)


def test_scheduler_call_on_a_full_database_gives_nothing_out(bench):
    bench.engine.create_workunits([make_spec(f"w{n}_1") for n in range(50)])
    bench.request(1)
    set_query_only(bench, "ON")
    with pytest.raises(InternalError, match="STO-R030"):
        bench.request(1, cpu_req_instances=50.0)
    set_query_only(bench, "OFF")
    assert all(copy.sent_at == 0 for copy in bench.engine.status("w0_1").results)
    assert bench.fetch(1)


def test_large_input_on_a_full_disk_stores_nothing(bench):
    spec = make_spec("w_1", data=bytes(4 * LIMIT))
    with largest_file(LIMIT), pytest.raises(InternalError, match="STO-R030"):
        bench.engine.create_workunits([spec])
    assert bench.engine.status("w_1") is None
    bench.engine.create_workunits([spec])
    assert bench.engine.status("w_1") is not None


def test_upload_on_a_full_disk_is_put_off_and_goes_on_later(bench):
    bench.engine.create_workunits([make_spec("w_1", result_max_bytes=10 * LIMIT)])
    (copy,) = bench.fetch(1)
    with largest_file(LIMIT), pytest.raises(InternalError, match="STO-R030"):
        bench.upload(copy, bytes(4 * LIMIT))
    bench.finish(1, copy, bytes(4 * LIMIT))
    assert bench.engine.status("w_1").results[0].outcome == "success"
