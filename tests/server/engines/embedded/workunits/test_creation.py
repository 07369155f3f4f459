"""Homogeneous and adaptive workunits through the scheduler."""

from __future__ import annotations

from dataclasses import replace

import pytest
from engine_bench import EmbeddedBench
from sqlalchemy import select

from stoilo.core.boinc.messages import HostInfo
from stoilo.core.types import Redundancy
from stoilo.server.engines.embedded.db import schema
from stoilo.server.engines.embedded.engine import EngineOptions
from stoilo.server.engines.interface import OutcomeKind
from stoilo.server.engines.workunits import Homogeneity, Replication
from tests.support.engine import make_spec

INTEL = HostInfo(os_name="Linux", vendor="GenuineIntel", model="Intel(R) Xeon(R)")
AMD = HostInfo(os_name="Linux", vendor="AuthenticAMD", model="AMD EPYC 7763")
ARM = HostInfo(os_name="Linux", vendor="ARM")
COARSE = Replication(homogeneous=Homogeneity.COARSE)
FINE = Replication(homogeneous=Homogeneity.FINE)
ADAPTIVE = Replication(adaptive=True)


class Draws:
    """What the engine draws: always `value`."""

    value = 0.5

    def __call__(self):
        return self.value


@pytest.fixture
def draws():
    return Draws()


@pytest.fixture
def bench(tmp_path, clock, draws):
    made = EmbeddedBench(tmp_path / "engine", clock, EngineOptions(draw=draws))
    yield made
    made.engine.close()


def make(bench, replication, name="w_1", **changes):
    bench.engine.create_workunits([make_spec(name, replication=replication, **changes)])


def records(bench):
    with bench.engine._database.read() as connection:
        table = schema.host_apps
        rows = connection.execute(select(table).order_by(table.c.host_id)).all()
    return [row.consecutive_valid for row in rows]


def earn(bench, users, count, start=0):
    """Let `users` agree on `count` ordinary workunits."""
    for number in range(start, start + count):
        make(bench, Replication(), f"earn_{number}")
        for user in users:
            (copy,) = bench.fetch(user)
            bench.finish(user, copy, b"x")
        bench.settle()


# ------------------------------------------------------------------ homogeneous


def test_copies_go_to_the_class_of_the_first_host(bench):
    make(bench, COARSE)
    assert bench.fetch(1, host=INTEL)
    assert bench.fetch(2, host=ARM) == []
    assert bench.fetch(3, host=AMD)


def test_status_names_the_class_that_copies_wait_for(bench):
    make(bench, COARSE)
    assert bench.fetch(1, host=INTEL)
    bench.request(2, host=ARM)
    explained = bench.engine.status("w_1").explanation
    assert "1 results wait for a host of class linux x86" in explained


def test_fine_class_tells_makers_apart(bench):
    make(bench, FINE)
    assert bench.fetch(1, host=INTEL)
    assert bench.fetch(2, host=AMD) == []
    assert bench.fetch(3, host=INTEL)


def test_host_of_unknown_class_gets_no_homogeneous_copy(bench):
    make(bench, COARSE)
    assert bench.fetch(1) == []
    assert bench.fetch(1, host=HostInfo(os_name="Linux")) == []


def test_ordinary_copies_go_to_any_class(bench):
    make(bench, Replication())
    assert bench.fetch(1, host=INTEL)
    assert bench.fetch(2, host=ARM)


def test_class_is_free_again_when_its_hosts_only_failed(bench):
    make(bench, COARSE)
    (copy,) = bench.fetch(1, host=INTEL)
    bench.fail(1, copy)
    bench.settle()
    assert bench.fetch(2, host=ARM)
    assert bench.fetch(3, host=INTEL) == []


# ------------------------------------------------------------------ adaptive


def test_adaptive_workunit_starts_with_one_copy_and_a_new_host_raises_it(bench):
    make(bench, ADAPTIVE)
    assert len(bench.engine.status("w_1").results) == 1
    (copy,) = bench.fetch(1)
    bench.finish(1, copy, b"x")
    bench.settle()
    assert bench.outcomes.kind("w_1") is None
    assert len(bench.engine.status("w_1").results) == 2


def test_host_with_a_record_works_alone(bench):
    bench.set_record(1, 10)
    make(bench, ADAPTIVE)
    (copy,) = bench.fetch(1)
    bench.finish(1, copy, b"x")
    bench.settle()
    outcome = bench.outcomes.outcomes["w_1"]
    assert outcome.kind is OutcomeKind.CANONICAL
    assert (outcome.quorum, len(outcome.valid)) == (1, 1)


def test_host_with_a_record_is_checked_when_drawn(bench, draws):
    bench.set_record(1, 10)
    draws.value = 0.05
    make(bench, ADAPTIVE)
    (copy,) = bench.fetch(1)
    bench.finish(1, copy, b"x")
    bench.settle()
    assert bench.outcomes.kind("w_1") is None


def test_record_short_of_ten_is_not_enough(bench):
    bench.set_record(1, 9)
    make(bench, ADAPTIVE)
    assert bench.fetch(1)
    bench.settle()
    assert len(bench.engine.status("w_1").results) == 2


def test_result_that_nobody_compared_earns_nothing(bench):
    bench.set_record(1, 10)
    make(bench, ADAPTIVE)
    (copy,) = bench.fetch(1)
    bench.finish(1, copy, b"x")
    bench.settle()
    assert records(bench) == [10]


@pytest.mark.parametrize("how", ["fail", "bad", "outvoted", "silent"])
def test_record_begins_again_after_a_failure(bench, how):
    earn(bench, (1, 2), 3)
    limits = Redundancy(max_total=5, max_success=5)
    make(bench, Replication(), redundancy=limits)
    (copy,) = bench.fetch(1)
    if how == "fail":
        bench.fail(1, copy)
    elif how == "silent":
        bench.pass_time(301)
    else:
        bench.finish(1, copy, b"bad" if how == "bad" else b"lie")
    bench.settle()
    for user in (3, 4):
        bench.finish(user, *bench.fetch(user), b"x") if how == "outvoted" else None
        bench.settle()
    assert records(bench)[0] == 0
    assert records(bench)[1] == 3


def test_raised_quorum_is_that_of_the_redundancy(bench):
    limits = Redundancy(min_quorum=3, target_results=3, max_total=5, max_success=5)
    make(bench, ADAPTIVE, redundancy=limits)
    for user in (1, 2, 3):
        (copy,) = bench.fetch(user)
        bench.settle()
        bench.finish(user, copy, b"x")
        bench.settle()
        assert bool(bench.outcomes.kind("w_1")) is (user == 3)


def test_adaptive_is_off_unless_it_is_asked_for(bench):
    bench.set_record(1, 12)
    make(bench, Replication())
    assert len(bench.engine.status("w_1").results) == 2


def test_trusted_account_works_alone_at_once(bench):
    bench.trust(1)
    make(bench, ADAPTIVE)
    (copy,) = bench.fetch(1)
    bench.finish(1, copy, b"x")
    bench.settle()
    assert bench.outcomes.kind("w_1") is OutcomeKind.CANONICAL


def test_late_result_of_a_trusted_host_does_not_stand_for_a_raised_quorum(bench):
    bench.trust(1)
    limits = replace(Redundancy(), delay_bound_s=100, max_total=5)
    make(bench, ADAPTIVE, redundancy=limits)
    (late,) = bench.fetch(1)
    bench.pass_time(101)
    bench.settle()
    assert bench.fetch(2)
    bench.finish(1, late, b"x")
    bench.settle()
    assert bench.outcomes.kind("w_1") is None
