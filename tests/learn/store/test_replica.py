"""Many reads and pushes in one pass: no step counts twice, none is lost."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from stoilo.learn.store.server import ParameterServer
from stoilo.learn.store.shards import LocalShard
from stoilo.learn.store.workers import Replica

X = np.random.default_rng(0).standard_normal((60, 3))
Y = (X @ np.array([1.0, -2.0, 0.5]) > 0).astype(float)


def increment(theta, x, y):
    odds = 1 / (1 + np.exp(-x @ theta))
    return 0.1 * ((y - odds) * x - 0.02 * theta)


def step(row):
    return lambda here: {"theta": increment(here["theta"], X[row], Y[row])}


def serial():
    theta = np.zeros(3)
    for x, y in zip(X, Y, strict=True):
        theta = theta + increment(theta, x, y)
    return theta


def server_of():
    server = ParameterServer({"a": LocalShard(), "b": LocalShard()})
    server.create({"theta": np.zeros(3)})
    return server


def theta_in(server):
    return server.read(["theta"])["theta"].value


def run_published(fetch, push):
    """The published worker: the difference since the last read, at every push."""
    server, here = np.zeros(3), np.zeros(3)
    for index in range(len(X)):
        if index % fetch == 0:
            here = read = server
        here = here + increment(here, X[index], Y[index])
        if (index + 1) % push == 0:
            server = server + (here - read)
    return server


@given(st.integers(1, 70), st.integers(1, 70))
def test_one_replica_equals_serial_sgd_however_reads_and_pushes_fall(fetch, push):
    server = server_of()
    Replica("w", server, ("theta",), fetch, push).run(map(step, range(len(X))))
    assert np.abs(theta_in(server) - serial()).max() < 1e-12


@pytest.mark.parametrize(("fetch", "push"), [(20, 10), (10, 20), (7, 5)])
def test_published_differences_since_the_read_overlap_or_are_lost(fetch, push):
    assert np.abs(run_published(fetch, push) - serial()).max() > 1e-2


def test_control_the_published_worker_is_right_where_reads_and_pushes_coincide():
    assert np.abs(run_published(10, 10) - serial()).max() < 1e-12


def test_replica_that_repeats_its_pass_after_a_crash_pushes_nothing_twice():
    server = server_of()
    for _ in range(2):  # the second time from the same sequence: nothing acknowledged
        Replica("w", server, ("theta",), 60, 10).run(map(step, range(len(X))))
    assert np.abs(theta_in(server) - serial()).max() < 1e-12
