"""The clock that was published with Paracel counts wrongly; ours does not.

Each test runs the published protocol beside ours on the same event clock. Five workers,
one three times slower, 60 iterations each.
"""

from collections import Counter

import pytest

from stoilo.learn.store.clock import VectorClock
from tests.support.clockwork import Clockwork

WORKERS = ["slow", "w1", "w2", "w3", "w4"]
TOTAL = 60


class Published:
    """The published server and its workers' waiting, defects included."""

    def __init__(self, limit, *, twice):
        self.limit, self.twice = limit, twice
        self.time, self.left = 0, len(WORKERS)
        self.counters = Counter()
        self.clocks = dict.fromkeys(WORKERS, 0)

    def may_start(self, worker):
        return self.clocks[worker] == 0 or self.time >= self.clocks[worker] - self.limit

    def commit(self, worker, iteration):
        index = iteration % self.limit if self.limit else 0
        self.counters[index] += 1
        if self.counters[index] >= self.left:
            self.time += 1
            self.counters[index] = 0
        if self.twice:
            self.counters[index] += 1
        self.clocks[worker] += 1

    def finish(self, _worker):
        self.left -= 1


def ours(limit):
    clock = VectorClock(limit)
    clock.join(WORKERS)
    return clock


def largest_lead(clock):
    """Run the five workers to their end; return how far two ever were apart."""
    counts, worst = dict.fromkeys(WORKERS, 0), 0

    def finish(worker):
        nonlocal worst
        clock.commit(worker, counts[worker])
        counts[worker] += 1
        worst = max(worst, max(counts.values()) - min(counts.values()))
        if counts[worker] == TOTAL:
            clock.finish(worker)
        return counts[worker] < TOTAL

    def delay(worker):
        return 3.0 if worker == "slow" else 1.0 + 0.01 * WORKERS.index(worker)

    Clockwork(clock.may_start, lambda _: None, finish, delay).run(
        WORKERS, lambda: False
    )
    assert min(counts.values()) == TOTAL, "somebody waits for ever"
    return worst


@pytest.mark.parametrize("limit", [0, 1, 3, 8])
def test_ours_keeps_its_bound(limit):
    assert largest_lead(ours(limit)) <= limit + 1


def test_defect_1_commits_that_count_twice_make_nobody_wait():
    assert largest_lead(Published(0, twice=True)) > 30


@pytest.mark.parametrize("limit", [3, 8])
def test_defect_2_counting_modulo_the_limit_mixes_iterations(limit):
    assert largest_lead(Published(limit, twice=False)) > limit + 1


def test_defect_3_one_who_finished_lets_the_time_run_ahead_of_the_others():
    published, clock = Published(3, twice=False), VectorClock(3)
    clock.join(WORKERS)
    for worker in WORKERS[1:]:  # four of five do their first iteration
        published.commit(worker, 0)
        clock.commit(worker, 0)
    for one in (published, clock):
        one.finish("w1")
        one.commit("w2", 3 if one is published else 1)  # same counter: 3 modulo 3
    assert published.time == 1, "counted as if `slow` had done its first iteration"
    assert clock.time == 0


def test_bound_of_none_lets_the_fast_ones_run():
    assert largest_lead(ours(None)) > 30
