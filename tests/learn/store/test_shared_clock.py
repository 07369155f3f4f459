"""The clock as a cell: as the pure one, for any process, over kills and leases."""

import random
import threading
import time
from concurrent.futures import ThreadPoolExecutor

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stoilo.core.errors import UsageError, WaitError
from stoilo.learn.store.clock import SharedClock, VectorClock
from stoilo.learn.store.server import ParameterServer
from stoilo.learn.store.shards import LocalShard
from stoilo.learn.store.workers import Worker
from tests.support.networkshard import NetworkShard

NAMES = ["w0", "w1", "w2"]


def server_on(path=None):
    return ParameterServer({"a": LocalShard(path)})


def shared(limit, server=None, **more):
    clock = SharedClock(server or server_on(), "run", limit, **more)
    clock.join(NAMES)
    return clock


EVENTS = st.lists(
    st.tuples(st.sampled_from(NAMES), st.sampled_from("cccccljr")), max_size=60
)


@given(st.sampled_from([0, 1, 3, 8]), EVENTS)
def test_cell_is_the_pure_clock_under_any_events(limit, events):
    """Commits, leaves, joins, repetitions: the same clocks, time and right to start."""
    ours, pure = shared(limit), VectorClock(limit)
    pure.join(NAMES)
    for worker, event in events:
        now = pure.clocks.get(worker)
        if event == "j":
            ours.join([worker])
            pure.join([worker])
        elif event == "l" and now is not None:
            ours._tell(worker, -2 - now, by="")
            pure.leave(worker)
        elif event in "cr" and now is not None:
            iteration = now - (event == "r")
            if event == "r" or pure.may_start(worker):
                counted = ours.commit(worker, iteration)
                assert counted == pure.commit(worker, iteration)
        assert (ours.clock.clocks, ours.time) == (pure.clocks, pure.time)
        assert ours.clock.lead <= limit + 1


def test_what_does_not_follow_changes_nothing():
    clock = shared(3)
    for event in (0, 2, -3, -7):  # repeated, too early, given up at another clock
        clock._tell("w0", event)
    clock._tell("stranger", 1)
    assert clock.clock.clocks == dict.fromkeys(NAMES, 0)


def test_time_is_the_furthest_when_all_have_finished():
    clock = shared(None)
    for worker, total in zip(NAMES, (3, 5, 4), strict=True):
        for iteration in range(total):
            clock.commit(worker, iteration)
        clock.finish(worker)
    assert clock.clock.clocks == {}
    clock.await_time(99, limit_s=0.0)


def test_file_keeps_each_commit(tmp_path):
    path = tmp_path / "a.db"
    server = server_on(path)
    clock = shared(1, server)
    assert clock.commit("w0", 0)
    server.close()
    again = shared(1, server_on(path))
    assert again.clock.clocks == {"w0": 1, "w1": 0, "w2": 0}


def test_one_too_far_ahead_waits_and_is_told_so():
    clock = shared(0, pause_s=0.0)
    clock.commit("w0", 0)
    with pytest.raises(WaitError, match="STO-T063"):
        clock.await_start("w0", limit_s=0.0)
    with pytest.raises(UsageError, match="STO-T040"):
        clock.sync("w0")


class Watch:
    """A clock that goes on when somebody sleeps."""

    def __init__(self):
        self.s = 0.0

    def now(self):
        return self.s

    def sleep(self, seconds):
        self.s += seconds


def test_silent_one_is_given_up_and_comes_back_at_the_servers_time():
    watch, server = Watch(), server_on()
    told = {"now": watch.now, "sleep": watch.sleep, "pause_s": 1.0}
    clock = shared(0, server, lease_s=10.0, **told)
    for worker in ("w0", "w1"):
        clock.commit(worker, 0)
    assert clock.await_start("w0") == 1  # w2 is given up meanwhile
    assert watch.s == pytest.approx(10.0, abs=1.0)
    assert not SharedClock(server, "run", 0).commit("w2", 0)
    for worker in ("w0", "w1"):
        clock.commit(worker, 1)
    assert clock.await_start("w2") == 2


def test_control_without_a_lease_all_wait_for_the_silent_one():
    watch = Watch()
    clock = shared(0, now=watch.now, sleep=watch.sleep, pause_s=1.0)
    clock.commit("w0", 0)
    with pytest.raises(WaitError):
        clock.await_start("w0", limit_s=500.0)


def work(server, name, limit, total, seen):
    """The program of one worker, with a clock of its own; it counts and watches leads."""
    clock = SharedClock(server, "run", limit, pause_s=0.002)
    clock.join(NAMES)
    worker, chance = Worker(name, server, clock, total=total), random.Random(name)
    for _ in worker.iterations():
        time.sleep(chance.choice([0.0, 0.0, 0.01]))
        worker.update("steps", 1)
        seen.append(clock.clock.lead)


def run_workers(servers, limit, total):
    servers[0].create({"steps": 0})
    seen = []
    with ThreadPoolExecutor(len(NAMES)) as pool:
        jobs = [
            pool.submit(work, server, name, limit, total, seen)
            for server, name in zip(servers, NAMES, strict=True)
        ]
        for job in jobs:
            job.result(120)
    return seen


@pytest.mark.parametrize("limit", [0, 1, 3])
def test_workers_with_clocks_of_their_own_stay_together(limit):
    server = server_on()
    assert max(run_workers([server] * 3, limit, 25)) <= limit + 1
    assert server.read(["steps"])["steps"].value == 75


def test_control_without_a_limit_they_do_not():
    assert max(run_workers([server_on()] * 3, None, 100)) > 4


@pytest.mark.slow
def test_clock_on_the_network_survives_kills_of_its_machine(tmp_path):
    with NetworkShard(tmp_path / "shard") as machine:
        servers = [ParameterServer.connect([machine.place]) for _ in NAMES]
        ended = threading.Event()

        def murder():
            for _ in range(3):
                if ended.wait(0.3):
                    return
                machine.kill()
                machine.start()

        killer = threading.Thread(target=murder)
        killer.start()
        leads = run_workers(servers, 1, 100)
        ended.set()
        killer.join()
        assert sum(s.shards["shard0"].process.started for s in servers) > 3
        assert max(leads) <= 2
        assert servers[0].read(["steps"])["steps"].value == 300
        for server in servers:
            server.close()
