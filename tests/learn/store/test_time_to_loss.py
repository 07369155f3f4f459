"""What a limit buys: logistic regression, 8 workers, transient and permanent delays."""

import functools
import itertools

import numpy as np
import pytest

from stoilo.learn.store.clock import VectorClock
from tests.support.clockwork import Clockwork

WORKERS = [f"w{index}" for index in range(8)]
GAP, RATE, DECAY = 0.02, 0.3, 0.01


@functools.cache
def problem():
    rng = np.random.default_rng(0)
    x = rng.standard_normal((1600, 50))
    truth = rng.standard_normal(50)
    y = (rng.random(1600) < 1 / (1 + np.exp(-x @ truth))).astype(float)
    return x, y


def gradient(theta, x, y):
    return x.T @ (1 / (1 + np.exp(-x @ theta)) - y) / len(y) + 2 * DECAY * theta


def loss(theta):
    x, y = problem()
    z = x @ theta
    return float(np.mean(np.logaddexp(0, z) - y * z) + DECAY * theta @ theta)


@functools.cache
def optimum():
    theta = np.zeros(50)
    for _ in range(3000):
        theta = theta - 2.0 * gradient(theta, *problem())
    return loss(theta)


def transient(rng, _worker):
    """One iteration in ten takes six times as long."""
    return 6.0 if rng.random() < 0.1 else 1.0


def permanent(_rng, worker):
    """One worker is always three times slower."""
    return 3.0 if worker == "w0" else 1.0


def time_to_gap(limit, delay, seed):
    clock, rng = VectorClock(limit), np.random.default_rng(seed)
    clock.join(WORKERS)
    x, y = problem()
    parts = dict(zip(WORKERS, np.split(np.arange(1600), 8), strict=True))
    theta, read = np.zeros(50), {}

    def begin(worker):
        read[worker] = theta

    def finish(worker):
        nonlocal theta
        rows = parts[worker]
        theta = theta - RATE / 8 * gradient(read[worker], x[rows], y[rows])
        return clock.commit(worker, clock.clock_of(worker))

    bench = Clockwork(clock.may_start, begin, finish, lambda w: delay(rng, w))
    return bench.run(WORKERS, lambda: loss(theta) < optimum() + GAP)


def speedup(limit, delay, seeds=3):
    bsp = sum(time_to_gap(0, delay, seed) for seed in range(seeds))
    return bsp / sum(time_to_gap(limit, delay, seed) for seed in range(seeds))


def test_limit_of_3_under_transient_delays_is_half_as_fast_again_as_bsp():
    assert speedup(3, transient) >= 1.5


@pytest.mark.slow
def test_larger_limits_are_faster_under_transient_delays():
    times = [time_to_gap(limit, transient, 0) for limit in (0, 1, 3, 8, None)]
    assert all(a > b for a, b in itertools.pairwise(times))


def test_control_a_limit_does_little_against_a_permanently_slow_worker():
    assert 0.95 <= speedup(1, permanent, 1) <= 1.15
    assert speedup(None, permanent, 1) >= 2.0
