"""Trainers through gate, log and jail on two hosts: every attempt has its leaf."""

import asyncio

import numpy as np
import pytest
import torch
from torch import nn

import stoilo
from stoilo.client.session import Journal
from stoilo.learn.backends.server import ServerBackend
from stoilo.learn.core.data import split
from stoilo.learn.core.models import ArrayModel
from stoilo.learn.driver.run import Run, RunSettings
from stoilo.learn.methods.base import LocalWork
from stoilo.learn.methods.vcasgd import Vcasgd, VcasgdSettings
from stoilo.testing.deployment import Deployment
from tests.support.traces import count_work_leaves


class Network(nn.Module):
    """A classifier of the researcher's own."""

    def __init__(self):
        super().__init__()
        self.body = nn.Sequential(nn.Linear(4, 8), nn.BatchNorm1d(8), nn.Linear(8, 3))

    def forward(self, x):
        return self.body(x)


def softmax_loss(parameters, x, y):
    z = x @ parameters["w"]
    z = z - z.max(axis=1, keepdims=True)
    logs = z - np.log(np.exp(z).sum(axis=1, keepdims=True))
    slope = np.exp(logs)
    slope[np.arange(len(y)), y] -= 1.0
    return -float(logs[np.arange(len(y)), y].sum()), {"w": x.T @ slope}


@pytest.fixture(scope="module")
def deployment(tmp_path_factory):
    with Deployment(
        tmp_path_factory.mktemp("learning") / "data", volunteers=2
    ) as running:
        yield running


@pytest.fixture
def samples():
    rng = np.random.default_rng(1)
    y = rng.integers(0, 3, 96)
    return rng.normal(size=(96, 4)) + np.eye(3, 4)[y] * 3.0, y


def connect(deployment):
    journal = Journal(deployment.data.parent / "journal")
    return stoilo.connect(deployment.line.connection, journal=journal)


async def attempts_of(conn):
    tasks = [conn.restore_task(entry.task_id) for entry in conn.recent_tasks(1000)]
    found = [await task.status() for task in tasks]
    return {(s.task_id, s.attempt): s.log_index for s in found if s.logged}


@pytest.mark.slow
def test_thesis_trainer_learns_and_every_attempt_is_in_the_log(deployment, samples):
    async def train():
        torch.manual_seed(0)
        x, y = samples
        dataset = (x.astype(np.float32), y)
        async with connect(deployment) as conn:
            known = await attempts_of(conn)
            before = count_work_leaves(deployment.line.http)
            trainer = await stoilo.ml.DPBGDTrainer(
                conn, Network(), nn.functional.cross_entropy, torch.optim.Adam,
                {"lr": 0.05}, dataset,
            )  # fmt: skip
            losses = [(await trainer.train_epoch())[1] for _ in range(3)]
            every = await attempts_of(conn)
            attempts = {one: every[one] for one in every.keys() - known.keys()}
            await trainer.close()
        return losses, attempts, count_work_leaves(deployment.line.http) - before

    losses, attempts, leaves = asyncio.run(train())
    assert losses[2] < losses[1] < losses[0]
    assert len(attempts) == len(set(attempts.values())) == 3 * 8
    assert leaves == sum(number for _, number in attempts)


async def _start(conn, model, parts, folder):
    settings = VcasgdSettings(2, LocalWork(rate=0.1, batch=6), alpha=0.5)
    method = Vcasgd(model.first(), [len(part) for part in parts], settings)
    run = Run(method, model, parts, ServerBackend(conn), RunSettings(folder=folder))
    await run.start()
    return run


@pytest.mark.slow
def test_killed_training_goes_on_with_the_tasks_that_were_out(
    deployment, samples, tmp_path
):
    model = ArrayModel({"w": np.zeros((4, 3))}, softmax_loss)
    parts = split(*samples, 4)

    async def train():
        async with connect(deployment) as conn:
            killed = await _start(conn, model, parts, tmp_path)
            await killed.step()
            await killed._fill()
            out = {flight.job_id for flight in killed._flights.all()}
            await killed.backend.close()
            before = set(await attempts_of(conn))
            run = await _start(conn, model, parts, tmp_path)
            again = {flight.job_id for flight in run._flights.all()}
            await run.finish()
            await run.backend.close()
            fresh = set(await attempts_of(conn)) - before
        return out, again, run.history.updates, fresh

    out, again, updates, fresh = asyncio.run(train())
    assert out == again != set()
    assert len(fresh) <= 2 * len(parts) - 1
    keys = [update.key for update in updates if update.applied]
    assert len(keys) == len(set(keys)) == 2 * len(parts)
