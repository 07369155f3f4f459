"""Logistic regression by the driver: threads and simulated volunteers, the same method."""

import os
import signal

import numpy as np
import pytest

from stoilo.core.errors import InternalError
from stoilo.learn.backends.local import LocalBackend
from stoilo.learn.backends.simulated import SimulatedBackend, SimulatedHost, Spell
from stoilo.learn.core.data import split
from stoilo.learn.core.models import ArrayModel
from stoilo.learn.driver.run import Run, RunSettings
from stoilo.learn.kernels.array_models import make_logistic_loss
from stoilo.learn.methods.logistic import LogisticRegression, LogisticSettings
from stoilo.learn.store.server import ParameterServer
from stoilo.learn.trainers.named import LogisticTrainer
from stoilo.learn.trainers.trainer import TrainerOptions

MODES = {
    "dgd": {"rounds": 20, "rate": 5e-3},
    "ipm": {"rounds": 10, "rate": 3e-2},
    "downpour": {"rounds": 4, "rate": 1e-2, "limit": 3, "push": 10},
    "agd": {"rounds": 1, "rate": 3e-2, "limit": None},
}


@pytest.fixture
def samples():
    rng = np.random.default_rng(0)
    x = rng.standard_normal((200, 5))
    odds = 1 / (1 + np.exp(-x @ np.array([2.0, -1.0, 0.5, 0.0, 1.0])))
    return x, (rng.random(200) < odds).astype(float)


@pytest.fixture
def model():
    return ArrayModel({"theta": np.zeros(5)}, make_logistic_loss())


def crowd():
    """Six volunteers that lose tasks, stall, leave and return."""
    away = [(), (Spell(5.0, 20.0),), (Spell(15.0, 40.0),)]
    return SimulatedBackend(
        [SimulatedHost(loss=0.05, stall=0.1, away=away[i % 3]) for i in range(6)]
    )


async def train(method, model, parts, backend):
    settings = RunSettings(clip=None)
    async with backend, Run(method, model, parts, backend, settings) as run:
        return (await run.finish()).parameters["theta"]


def method_of(model, parts, mode):
    settings = LogisticSettings(mode, **MODES[mode])
    return LogisticRegression(model.first(), [len(p) for p in parts], settings)


@pytest.mark.parametrize("place", [LocalBackend, crowd])
@pytest.mark.parametrize("mode", MODES)
async def test_every_mode_learns_on_every_kind_of_volunteer(
    mode, place, model, samples
):
    parts = split(*samples, 4)
    theta = await train(method_of(model, parts, mode), model, parts, place())
    loss = make_logistic_loss()
    before, after = (
        loss({"theta": at}, *samples)[0] / 200 for at in (np.zeros(5), theta)
    )
    assert after < 0.8 * before


async def test_losses_and_returns_do_not_change_a_bsp_run_by_a_bit(model, samples):
    parts = split(*samples, 4)
    found = [
        await train(method_of(model, parts, "dgd"), model, parts, backend)
        for backend in (LocalBackend(1), crowd())
    ]
    assert np.array_equal(*found)


def swallowing():
    """Four volunteers; one never gives anything back, which the server knows in a day."""
    hosts = [SimulatedHost(loss=1.0), *[SimulatedHost()] * 3]
    return SimulatedBackend(hosts, deadline_s=86_400.0)


async def seconds_of(backend, samples, lease_s, limit):
    settings = LogisticSettings("dgd", rounds=10, limit=limit, lease_s=lease_s)
    async with backend, LogisticTrainer(backend, split(*samples, 4), settings) as it:
        assert len((await it.train()).epochs) > 0
        assert it.finished
    return backend.now()


@pytest.mark.parametrize("limit", [0, 3])
async def test_lease_lets_the_others_go_on_without_a_part_that_is_lost(limit, samples):
    assert await seconds_of(swallowing(), samples, 30.0, limit) < 86_400.0 / 10


@pytest.mark.parametrize("limit", [0, 3])
async def test_control_without_a_lease_all_wait_for_the_deadline(limit, samples):
    assert await seconds_of(swallowing(), samples, None, limit) > 86_400.0


async def test_lease_without_any_volunteer_ends_in_an_error_not_in_waiting(samples):
    backend = SimulatedBackend([])
    with pytest.raises(InternalError, match="STO-T020"):
        await seconds_of(backend, samples, 30.0, 0)


async def test_lease_changes_nothing_where_all_answer_in_time(model, samples):
    parts = split(*samples, 4)
    found = []
    for lease_s in (None, 1000.0):
        settings = LogisticSettings("dgd", rounds=5, lease_s=lease_s)
        method = LogisticRegression(model.first(), [50] * 4, settings)
        found.append(await train(method, model, parts, LocalBackend(1)))
    assert np.array_equal(*found)


class ShardKiller:
    """A watcher that kills one shard's process after every few updates."""

    def __init__(self, server, every):
        self.shards, self.every, self.seen = list(server.shards.values()), every, 0

    def __call__(self, _update, _tally):
        self.seen += 1
        if self.seen % self.every == 0:
            victim = self.shards[self.seen // self.every % len(self.shards)]
            os.kill(victim.process.pid, signal.SIGKILL)

    @property
    def killed(self):
        return sum(shard.process.started - 1 for shard in self.shards)


async def trained_on(server, samples, mode, watcher=None):
    settings = LogisticSettings(mode, **MODES[mode], block_bytes=8)
    options = TrainerOptions(tasks=4, clip=None, watcher=watcher)
    backend = SimulatedBackend([SimulatedHost(stall=0.2) for _ in range(3)])
    async with LogisticTrainer(
        backend, samples, settings, server=server, options=options
    ) as trainer:
        await trainer.train()
    return trainer.snapshot.parameters["theta"]


@pytest.mark.slow
@pytest.mark.parametrize(("mode", "every"), [("dgd", 30), ("downpour", 30)])
async def test_shards_killed_in_mid_training_do_not_change_it_by_a_bit(
    mode, every, samples, tmp_path
):
    server = ParameterServer.open(tmp_path, 2, processes=True)
    killer = ShardKiller(server, every)
    theta = await trained_on(server, samples, mode, killer)
    server.close()
    assert killer.killed >= 2
    assert np.array_equal(theta, await trained_on(None, samples, mode))
