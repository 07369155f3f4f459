"""Logistic regression by the driver: threads and simulated volunteers, the same method."""

import numpy as np
import pytest

from stoilo.learn.backends.local import LocalBackend
from stoilo.learn.backends.simulated import SimulatedBackend, SimulatedHost, Spell
from stoilo.learn.data import split
from stoilo.learn.kernels.logistic import make_loss
from stoilo.learn.models import ArrayModel
from stoilo.learn.ps.logistic import LogisticRegression, LogisticSettings
from stoilo.learn.run import Run, RunSettings

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
    return ArrayModel({"theta": np.zeros(5)}, make_loss())


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
    loss = make_loss()
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
