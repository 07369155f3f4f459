"""A training handed over to a coordinator beside a real server with volunteers."""

import asyncio
import subprocess
import sys

import numpy as np
import pytest
import torch
from torch import nn

import stoilo
from stoilo import learn
from stoilo.client.session import Journal
from stoilo.testing.deployment import Deployment
from tests.support.handedover import CoordinatorProcess


class Network(nn.Module):
    """A classifier of the researcher's own, with running statistics."""

    def __init__(self):
        super().__init__()
        self.body = nn.Sequential(nn.Linear(4, 8), nn.BatchNorm1d(8), nn.Linear(8, 3))

    def forward(self, x):
        return self.body(x)


def samples():
    rng = np.random.default_rng(1)
    y = rng.integers(0, 3, 48)
    return (rng.normal(size=(48, 4)) + np.eye(3, 4)[y] * 3.0).astype(np.float32), y


def network():
    torch.manual_seed(0)
    return Network()


GIVEN = {"epochs": 3, "rate": 0.05, "loss": nn.functional.cross_entropy}
OPTIONS = learn.TrainerOptions(tasks=3)


@pytest.mark.slow
def test_module_trained_for_an_absent_researcher_has_the_weights_of_a_run_at_home(
    tmp_path,
):
    with Deployment(tmp_path / "data", volunteers=2) as running:
        account = tmp_path / "ada.json"
        words = ["account", "add", "ada", "--data", tmp_path / "data", "--days", "1"]
        subprocess.run(
            [sys.executable, "-m", "stoilo", *map(str, words), "--connection", account],
            check=True,
        )
        server = running.line.connection
        with CoordinatorProcess(tmp_path / "state", server) as coordinator:
            found = asyncio.run(_hand_over(coordinator, account))
        expected = asyncio.run(_at_home(account))
    progress, snapshot = found
    assert progress.phase == "ended", progress
    for kind in ("parameters", "buffers"):
        ours, theirs = getattr(snapshot, kind), getattr(expected, kind)
        assert ours.keys() == theirs.keys() != set()
        assert all(np.array_equal(ours[name], theirs[name]) for name in theirs)


async def _hand_over(coordinator, account):
    run = await learn.hand_over(
        coordinator.files["ada"], "dpbgd", network(), samples(),
        account=account, options=OPTIONS, **GIVEN,
    )  # fmt: skip
    coordinator.kill()
    coordinator.start()
    again = learn.take_up(run.id, coordinator=coordinator.files["ada"])
    return await again.wait(0.5), await again.snapshot()


async def _at_home(account):
    async with stoilo.connect(account, journal=Journal(None)) as conn:
        trained = await learn.fit(
            "dpbgd", network(), samples(), conn, options=OPTIONS, **GIVEN
        )
        return trained.snapshot
