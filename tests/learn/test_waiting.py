"""What a run waits for: a server that is away, yes; answers that count no more, no."""

import dataclasses

import numpy as np
import pytest

from stoilo.core.errors import UnreachableError
from stoilo.learn.backends.local import LocalBackend
from stoilo.learn.backends.simulated import SimulatedBackend, SimulatedHost
from stoilo.learn.core.data import split
from stoilo.learn.core.models import ArrayModel
from stoilo.learn.driver.run import Run, RunSettings
from stoilo.learn.methods.base import LocalWork
from stoilo.learn.methods.federated import FederatedSettings, fedavg
from stoilo.learn.methods.optimizers import Sgd
from stoilo.learn.methods.synchronous import Synchronous, SynchronousSettings
from tests.support.trainings import KEYS, make_run, squares

SESSION_S = 60.0
"""How long a session itself tries before it says that a server is away."""


class Away(LocalBackend):
    """A server that is away for a time, on a virtual clock that failed calls move."""

    def __init__(self, after, for_s):
        super().__init__(1)
        self.clock, self.left, self.after, self.calls = 0.0, for_s, after, 0

    def now(self):
        return self.clock

    async def submit(self, job):
        self.calls += 1
        if self.calls > self.after and self.left > 0:
            self.clock += min(SESSION_S, self.left)
            self.left -= SESSION_S
            raise UnreachableError("STO-C050", "nobody answers")
        return await super().submit(job)


async def test_server_that_is_down_for_a_minute_and_more_is_waited_for(tmp_path):
    async with (
        Away(after=6, for_s=150.0) as backend,
        make_run(tmp_path, backend) as run,
    ):
        await run.finish()
    keys = [update.key for update in run.history.updates]
    assert sorted(keys) == sorted(KEYS)
    assert backend.clock == 150.0


async def test_trainer_killed_while_the_server_is_down_does_each_shard_once(tmp_path):
    async with Away(after=6, for_s=1e9) as backend:
        run = make_run(tmp_path, backend)
        run.settings = RunSettings(folder=tmp_path, in_flight=3, outage_s=0.0)
        await run.start()
        with pytest.raises(UnreachableError):
            await run.finish()
    async with LocalBackend(1) as backend, make_run(tmp_path, backend) as again:
        assert 0 < len(again.history) < len(KEYS)
        await again.finish()
    keys = [update.key for update in again.history.updates]
    assert sorted(keys) == sorted(KEYS)


MODEL = ArrayModel({"w": np.zeros(2)}, squares)


def parts_of(count, size):
    x = np.random.default_rng(0).normal(size=(count * size, 2))
    return split(x, x.sum(axis=1), count)


def make_partial(hosts, late="discard", fraction=0.875, steps=40):
    parts = parts_of(8, 10)
    settings = SynchronousSettings(steps, fraction=fraction, late=late)
    method = Synchronous(MODEL.first(), [10] * 8, Sgd(1e-3), settings)
    backend = SimulatedBackend(hosts, seed=3)
    return Run(method, MODEL, parts, backend, RunSettings(in_flight=8))


def stalling(count=16):
    return [
        SimulatedHost(samples_per_s=10.0, stall=0.06, stall_times=100.0)
        for _ in range(count)
    ]


async def time_of(run):
    await run.finish()
    return run.backend.now()


async def test_stragglers_of_a_partial_step_hold_up_none_of_the_next():
    partial = await time_of(make_partial(stalling()))
    full = await time_of(make_partial(stalling(), fraction=1.0))
    assert partial < full / 2  # the control: a step that needs all waits for each stall
    roomy = make_partial(stalling())
    roomy.settings = RunSettings(in_flight=64)
    assert partial <= 1.05 * await time_of(roomy)


async def test_order_that_would_be_discarded_is_cancelled():
    run = make_partial(stalling(), steps=5)
    async for update in run.updates():
        out = {flight.order.key for flight in run._flights.all()}
        assert not out & set(update.given_up)
        assert len(out) <= 8


@pytest.mark.parametrize("late", ["discard", "queue"])
async def test_late_orders_take_no_room_of_the_next_step(late):
    slow = SimulatedHost(samples_per_s=0.01)
    hosts = [slow, *[SimulatedHost(poll_s=0.0)] * 15]
    run = make_partial(hosts, late, steps=3)
    while run.method.steps < 2:
        await run.step()
        await run._fill()
    present = {f.order.key for f in run._flights.all() if not f.is_late}
    assert present == {f"e2/s0/p{part}" for part in range(8)}
    assert (len(run._flights) > 8) == (late == "queue")


async def test_late_answers_that_queue_count_in_a_later_step():
    hosts = [SimulatedHost(samples_per_s=5.0), *[SimulatedHost(poll_s=0.0)] * 15]
    run = make_partial(hosts, "queue", steps=6)
    async for _ in run.updates():
        pass
    assert any(u.applied and u.staleness for u in run.history.updates)


async def test_parts_that_a_round_of_federated_learning_leaves_are_cancelled():
    local = LocalWork(rate=1e-3, batch=5)
    settings = FederatedSettings(3, local, fraction=0.75)
    method = fedavg(MODEL.first(), [10] * 4, settings)
    backend = SimulatedBackend([SimulatedHost(samples_per_s=0.1), *stalling(3)])
    run = Run(method, MODEL, parts_of(4, 10), backend, RunSettings(in_flight=4))
    await run.finish()
    given_up = [u.given_up for u in run.history.updates if u.epoch_ended]
    assert [len(keys) for keys in given_up] == [1, 1, 1]


class Deaf(SimulatedBackend):
    """A server that cannot be reached just when an answer is refused."""

    refused = 0

    async def submit(self, job):
        return await super().submit(dataclasses.replace(job, check=None))

    async def refuse(self, job_id, reason):
        self.refused += 1
        raise UnreachableError("STO-C050", f"nobody hears of {job_id}: {reason}")


def spoil(value):
    return {**value, "samples": 7}


async def test_answer_that_is_refused_while_nobody_hears_is_ordered_again():
    backend = Deaf([SimulatedHost(cheat=spoil), SimulatedHost(), SimulatedHost()])
    async with make_run(None, backend) as run:
        await run.finish()
    assert backend.refused
    assert sorted(u.key for u in run.history.updates) == sorted(KEYS)
