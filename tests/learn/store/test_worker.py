"""Workers in threads: programs that look serial, waits, barriers, leases, killed shards."""

import os
import signal
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest

from stoilo.core.errors import WaitError
from stoilo.learn.kernels.array_models import make_logistic_loss
from stoilo.learn.store.functions import Probe, register
from stoilo.learn.store.server import ParameterServer
from stoilo.learn.store.shards import LocalShard
from stoilo.learn.store.workers import ClockService, Worker

NAMES = ["w0", "w1", "w2"]
RNG = np.random.default_rng(0)
X = RNG.standard_normal((60, 4))
Y = (X @ np.array([1.0, -1.0, 0.5, 0.0]) > 0).astype(float)
ROWS = np.split(np.arange(60), 3)
gradient_of = make_logistic_loss()


def in_memory(functions=()):
    server = ParameterServer(
        {"a": LocalShard(None, functions), "b": LocalShard(None, functions)}, functions
    )
    server.create({"theta": np.zeros(4), "steps": 0})
    return server


def run_threads(program, names=NAMES):
    """Run a program for each worker to its end; raise what one of them raised."""
    with ThreadPoolExecutor(len(names)) as pool:
        for done in [pool.submit(program, name) for name in names]:
            done.result(120)


def descend(worker, *, barrier):
    """The program of one worker: gradient descent on its rows."""
    rows = ROWS[NAMES.index(worker.name)]
    for _ in worker.iterations():
        here = worker.read_many(["theta", "steps"])
        if barrier:
            worker.sync()
        slope = gradient_of({"theta": here["theta"]}, X[rows], Y[rows])[1]["theta"]
        worker.update("theta", -0.01 * slope)
        worker.update("steps", 1)


def descended(limit, *, barrier=False, total=25, lease_s=None):
    server, clock = in_memory(), ClockService(NAMES, limit, lease_s=lease_s)
    run_threads(
        lambda name: descend(Worker(name, server, clock, total=total), barrier=barrier)
    )
    return server, clock


def theta_in(server):
    return server.read(["theta"])["theta"].value


def test_bsp_with_a_barrier_after_reading_equals_serial_descent():
    server, _ = descended(0, barrier=True)
    theta = np.zeros(4)
    for _ in range(25):
        theta = theta - 0.01 * gradient_of({"theta": theta}, X, Y)[1]["theta"]
    assert np.abs(theta_in(server) - theta).max() < 1e-12


@pytest.mark.parametrize("limit", [0, 1, 3, None])
def test_same_program_learns_under_every_limit_and_no_update_is_lost(limit):
    server, clock = descended(limit)
    assert server.read(["steps"])["steps"].value == 75
    assert clock.time == 25
    before, after = (
        gradient_of({"theta": at}, X, Y)[0] for at in (np.zeros(4), theta_in(server))
    )
    assert after < 0.8 * before


@pytest.mark.parametrize("limit", [0, 1, 3])
def test_no_thread_gets_further_ahead_than_the_limit_and_one(limit):
    server, clock, leads = in_memory(), ClockService(NAMES, limit), []

    def program(name):
        for _ in Worker(name, server, clock, total=40).iterations():
            with clock._changed:
                leads.append(clock.clock.lead)

    run_threads(program)
    assert max(leads) <= limit + 1


def test_own_updates_are_read_at_once_without_fetching():
    server = in_memory()
    clock = ClockService(["w0", "w1"], limit=5)
    worker = Worker("w0", server, clock, total=3)
    seen = []
    for _ in worker.iterations():
        seen.append(worker.read("steps"))
        server.read = None  # nothing is fetched any more
        worker.update("steps", 1)
        seen.append(worker.read("steps"))
    assert seen == [0, 1, 1, 2, 2, 3]


def test_last_read_waits_for_all_who_live():
    server, clock, seen = in_memory(), ClockService(NAMES, limit=None), []

    def program(name):
        worker = Worker(name, server, clock, total=20)
        descend(worker, barrier=False)
        seen.append(worker.read_last(["steps"])["steps"])

    run_threads(program)
    assert seen == [60, 60, 60]


def test_last_read_without_anybody_alive_waits_for_nobody():
    clock = ClockService(["a", "dead"], lease_s=0.1)
    clock.await_start("dead")
    for _ in range(2):
        clock.commit("a", clock.await_start("a"))
    clock.finish("a")
    clock.await_time(2)


def smallest(value, change):
    return np.minimum(value, change)


def test_registered_function_is_used_by_name():
    server = in_memory([register("smallest", smallest, Probe(1.0, 2.0, 3.0))])
    worker = Worker("w0", server, ClockService(["w0"]), total=1)
    for _ in worker.iterations():
        worker.update("theta", np.full(4, -2.0), "smallest")
    assert theta_in(server).tolist() == [-2.0] * 4


def test_value_is_made_by_the_first_who_writes_it():
    server, clock = in_memory(), ClockService(["w0"])
    for value in (3, 5):
        Worker("w0", server, clock, total=1).write("first", value)
    assert server.read(["first"])["first"].value == 3


def test_iteration_that_is_repeated_after_a_crash_counts_once():
    server = in_memory()
    for _ in range(2):  # the second program knows nothing of the first
        worker = Worker("w0", server, ClockService(["w0"]), total=3)
        for _ in worker.iterations():
            worker.update("steps", 1)
    assert server.read(["steps"])["steps"].value == 3


def test_control_without_a_lease_the_others_wait_for_the_dead():
    clock = ClockService(["alive", "dead"])
    clock.await_start("dead")
    clock.commit("alive", clock.await_start("alive"))
    with pytest.raises(WaitError, match="STO-T063"):
        clock.await_start("alive", limit_s=0.1)


@pytest.mark.parametrize("limit", [0, 2])
def test_others_go_on_when_the_lease_of_a_dead_worker_has_ended(limit):
    server = in_memory()
    clock = ClockService([*NAMES, "dead"], limit, lease_s=0.3)
    clock.await_start("dead")  # and never heard of again
    run_threads(
        lambda name: descend(Worker(name, server, clock, total=10), barrier=True)
    )
    assert clock.clock.clocks == {}
    assert clock.time == 10


def test_worker_that_comes_back_goes_on_at_the_servers_time():
    now = [0.0]
    clock = ClockService(["a", "b"], lease_s=10.0, now=lambda: now[0])
    assert (clock.await_start("a"), clock.await_start("b")) == (0, 0)
    clock.commit("a", 0)
    now[0] = 10.0
    assert clock.await_start("a") == 1
    assert not clock.commit("b", 0)
    clock.commit("a", 1)
    assert clock.await_start("b") == 2


def test_killed_shards_lose_and_double_no_update_of_any_thread(tmp_path):
    server = ParameterServer.open(tmp_path, 2, processes=True)
    server.create({"theta": np.zeros(4), "steps": 0})
    clock, shards = ClockService(NAMES, 1), list(server.shards.values())

    def program(name):
        for number in (worker := Worker(name, server, clock, total=9)).iterations():
            worker.update_many({"steps": 1, "theta": np.ones(4)})
            if name == "w0" and number % 4 == 1:
                os.kill(shards[number // 4 % 2].process.pid, signal.SIGKILL)

    run_threads(program)
    cells = server.read(["steps", "theta"])
    server.close()
    assert cells["steps"].value == 27
    assert cells["theta"].value.tolist() == [27.0] * 4
    assert sum(shard.process.started for shard in shards) >= 3
