from __future__ import annotations

from dataclasses import replace

import pytest
from engine_bench import EmbeddedBench
from hypothesis import given
from hypothesis import strategies as st

from stoilo.core.digests import content_digest
from stoilo.server.engines.embedded.engine import EngineOptions
from stoilo.server.engines.embedded.scheduling import dispatch
from stoilo.server.engines.embedded.scheduling.sticky_files import (
    LARGE_BYTES,
    PATIENCE_S,
    Candidate,
    in_order,
)
from stoilo.server.engines.workunits import WorkunitFile
from tests.support.engine import make_spec

NOW = 1_800_000_000


def candidate(number, *, held=0, age=0):
    return Candidate(number, number, NOW - age, held)


def order(*candidates):
    return [one.id for one in in_order(candidates, NOW)]


def test_copy_whose_files_are_there_goes_first():
    assert order(candidate(1), candidate(2, held=9), candidate(3, held=99)) == [3, 2, 1]


def test_lot_decides_among_those_that_are_equal():
    few = [replace(candidate(n), lot=1 - n / 9) for n in range(1, 4)]
    assert order(*few) == [3, 2, 1]
    assert order(*few, candidate(9, held=1)) == [9, 3, 2, 1]


def test_lot_counts_less_than_files_and_more_than_age():
    few = [replace(candidate(1), lot=0.9), replace(candidate(2, held=9), lot=0.99)]
    assert order(*few) == [2, 1]
    assert order(replace(candidate(1, age=PATIENCE_S), lot=0.9), candidate(2)) == [2, 1]


def test_copy_that_has_waited_long_goes_before_those_with_files():
    assert order(candidate(1, age=PATIENCE_S), candidate(2, held=99)) == [1, 2]


@given(
    st.lists(
        st.builds(
            Candidate,
            id=st.integers(1, 999),
            workunit_id=st.integers(1, 9),
            created_at=st.integers(NOW - 2 * PATIENCE_S, NOW),
            held_bytes=st.integers(0, 3),
        ),
        unique_by=lambda one: one.id,
    )
)
def test_order_loses_and_repeats_nobody(candidates):
    found = in_order(candidates, NOW)
    assert sorted(found, key=id) == sorted(candidates, key=id)


@pytest.fixture
def bench(tmp_path, clock, engine_url):
    options = EngineOptions(lots=lambda: 0.5)  # the oldest first
    made = EmbeddedBench(tmp_path / "engine", clock, options, engine_url)
    yield made
    made.engine.close()


def shard(number):
    return bytes([number]) * LARGE_BYTES


def make_shards(bench, count):
    bench.engine.create_workunits(
        [
            make_spec(
                f"w_{number}",
                files=(
                    WorkunitFile(
                        "blob_000",
                        content_digest(shard(number)),
                        shard(number),
                        sticky=True,
                    ),
                ),
            )
            for number in range(count)
        ]
    )


def first_copy(bench, *held):
    names = tuple(content_digest(shard(number)) for number in held)
    (result,) = bench.request(1, cpu_req_instances=1.0, sticky_files=names).results
    return result.workunit


def test_host_gets_the_workunit_of_the_shard_that_it_holds(bench, monkeypatch):
    monkeypatch.setattr(dispatch, "WINDOW_LEAST", 8)
    make_shards(bench, 12)  # the last one is not among the oldest that are looked at
    assert first_copy(bench, 11) == "w_11"


def test_host_that_holds_nothing_gets_the_oldest(bench):
    make_shards(bench, 12)
    assert first_copy(bench) == "w_0"


def test_names_that_are_no_files_of_ours_change_nothing(bench):
    make_shards(bench, 3)
    odd = ("../../etc/passwd", "x" * 64, content_digest(b"unknown"))
    (result,) = bench.request(1, cpu_req_instances=1.0, sticky_files=odd).results
    assert result.workunit == "w_0"
