"""Backup copies near the end of a step: one slow host holds nobody up."""

import numpy as np
import pytest

from stoilo.core.errors import UsageError
from stoilo.learn import (
    FedAvgTrainer,
    FederatedSettings,
    LocalWork,
    Sgd,
    SimulatedBackend,
    SimulatedHost,
    SynchronousSettings,
    SynchronousTrainer,
    TrainerOptions,
    split,
)
from tests.support.points import make_model, make_samples

PARTS = split(*make_samples(120), 8)
SHARE = 0.25


def hosts():
    """Three that take half a second for a part, one that takes ten."""
    speeds = (30.0, 30.0, 30.0, 1.5)
    return SimulatedBackend([SimulatedHost(speed, poll_s=0.0) for speed in speeds])


def average(backups, place):
    settings = FederatedSettings(2, LocalWork(0.1), backups=backups)
    return FedAvgTrainer(place, make_model(), PARTS, settings)


def synchronise(backups, place):
    settings = SynchronousSettings(2, backups=backups)
    return SynchronousTrainer(place, make_model(), PARTS, settings, Sgd(0.1))


async def train(make, backups):
    async with make(backups, hosts()) as trainer:
        return await trainer.train()


@pytest.mark.parametrize("make", [synchronise, average])
async def test_step_with_backups_does_not_wait_for_the_slow_host(make):
    """Three turns of the fast hosts: in the third, the last part and two copies."""
    plain, backed = await train(make, 0.0), await train(make, SHARE)
    assert plain.epochs[0].seconds == pytest.approx(10.0)
    assert backed.epochs[0].seconds == pytest.approx(1.5)
    assert [epoch.accepted_tasks for epoch in backed.epochs] == [8, 8]
    for name, array in plain.snapshot.parameters.items():
        np.testing.assert_allclose(backed.snapshot.parameters[name], array, atol=1e-12)


async def test_step_whose_copies_are_lost_counts_each_part_once():
    lossy = SimulatedBackend([SimulatedHost(loss=0.4)] * 4, deadline_s=5.0, tries=50)
    async with synchronise(1.0, lossy) as trainer:
        trained = await trainer.train()
    assert [(e.accepted_tasks, e.samples) for e in trained.epochs] == [(8, 120)] * 2


async def test_backups_outlive_the_process(tmp_path):
    options = TrainerOptions(folder=tmp_path)
    settings = SynchronousSettings(2, backups=1.0)
    arguments = make_model(), PARTS, settings, Sgd(0.1)
    killed = SynchronousTrainer(hosts(), *arguments, options=options)
    for _ in range(7):  # of 8: a copy of the last is out
        await killed._step()
    async with SynchronousTrainer(hosts(), *arguments, options=options) as trainer:
        trained = await trainer.train()
    assert [(e.accepted_tasks, e.samples) for e in trained.epochs] == [(8, 120)] * 2


@pytest.mark.parametrize("backups", [-0.1, 1.1])
def test_share_that_is_none_is_refused(backups):
    for make in (synchronise, average):
        with pytest.raises(UsageError, match="STO-T040"):
            make(backups, None)
