from __future__ import annotations

import dataclasses

import msgspec
import pytest

from stoilo.core.types import Redundancy, RunLimits
from stoilo.server.admission.estimates import (
    KEPT_S,
    SAMPLES_KEPT,
    Demand,
    demand_of,
    load_samples,
    note_measured,
)
from stoilo.server.db.records import TaskSpec
from stoilo.server.db.schema import SAMPLE_BYTES
from stoilo.server.db.store import Store
from stoilo.server.engines.interface import ReceivedResult

NOW = 1_800_000_000
SPEC = TaskSpec(
    task_module="a" * 64,
    entry="task",
    validator_module="",
    init_entry="",
    compare_entry="",
    arguments="b" * 64,
    blobs=(),
    level="pure",
    policy_digest="",
    source_digest="",
    flavor="",
    redundancy=Redundancy(),
    limits=RunLimits(cpu_s=60, wall_s=120),
)
OTHER = msgspec.structs.replace(SPEC, entry="other")
ELSEWHERE = msgspec.structs.replace(OTHER, level="numeric")


@pytest.fixture
def store(url):
    return Store.open(url)


def taken(tmp_path, cpu_s, flops=1e9):
    return ReceivedResult("c", "w", tmp_path, 1, "d", 1, 1, NOW, cpu_s, flops)


def note(store, tmp_path, *times, spec=SPEC, now=NOW):
    with store.write() as connection:
        results = [taken(tmp_path, cpu_s) for cpu_s in times]
        note_measured(connection, spec, results, now)


def estimate(store, spec=SPEC):
    with store.read() as connection:
        samples = load_samples(connection, [spec])
    return samples.estimate(spec, demand_of(spec)), samples.knows(spec)


def test_source_is_estimated_from_its_own_runs(store, tmp_path):
    note(store, tmp_path, 3.0)
    assert estimate(store) == (3e9, True)


def test_new_source_is_estimated_from_its_level(store, tmp_path):
    note(store, tmp_path, 3.0)
    assert estimate(store, OTHER) == (3e9, False)


def test_runs_of_another_level_say_nothing(store, tmp_path):
    before = estimate(store, ELSEWHERE)
    note(store, tmp_path, 3.0)
    assert estimate(store, ELSEWHERE) == before


def test_workunit_without_measured_copies_changes_nothing(store, tmp_path):
    note(store, tmp_path, 3.0)
    note(store, tmp_path, 0.0)
    note(store, tmp_path)
    assert estimate(store) == (3e9, True)


def test_median_of_many_runs_is_kept(store, tmp_path):
    for cpu_s in (1.0, 9.0, 2.0, 50.0, 3.0):
        note(store, tmp_path, cpu_s)
    assert estimate(store) == (3e9, True)


def test_column_holds_all_samples_that_are_kept():
    longest = msgspec.msgpack.encode((1.1e308,) * SAMPLES_KEPT)
    assert len(longest) <= SAMPLE_BYTES


def test_source_of_long_ago_is_forgotten(store, tmp_path):
    note(store, tmp_path, 3.0)
    note(store, tmp_path, 5.0, spec=ELSEWHERE, now=NOW + KEPT_S + 1)
    assert not estimate(store)[1]
    assert estimate(store, ELSEWHERE) == (5e9, True)


def test_demand_counts_every_item_of_a_map():
    spec = msgspec.structs.replace(SPEC, map_items=7)
    assert demand_of(spec, 3, 4) == Demand(spec.limits, 7, 3, 4)


def test_result_claims_nothing_by_itself(tmp_path):
    plain = ReceivedResult("c", "w", tmp_path, 1, "d", 1, 1, NOW)
    assert plain == dataclasses.replace(plain, cpu_s=0.0, flops=0.0)
