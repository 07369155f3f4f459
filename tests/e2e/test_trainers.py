"""Every trainer on all three backends; at a server by gate, log and jail on two hosts."""

import asyncio
import functools
import sqlite3
from dataclasses import dataclass

import numpy as np
import pytest
import torch
from torch import nn

import stoilo
from stoilo.client.options import CreateOptions
from stoilo.client.session import Journal
from stoilo.learn import (
    METHODS,
    ArrayModel,
    LocalBackend,
    Privacy,
    Sgd,
    SimulatedBackend,
    SimulatedHost,
    TrainerOptions,
    split,
)
from stoilo.learn.backends.server import LEAST_S, ServerBackend
from stoilo.learn.core.tensors import flatten
from stoilo.testing.deployment import Deployment
from tests.support.points import WISHES, make_samples
from tests.support.traces import count_work_leaves, read_copies, successes

DATA = make_samples(96)
TORCH_DATA = DATA[0].astype(np.float32), DATA[1]
ADAM = torch.optim.Adam, {"lr": 0.05}


def softmax_loss(parameters, x, y):
    z = x @ parameters["w"]
    z = z - z.max(axis=1, keepdims=True)
    logs = z - np.log(np.exp(z).sum(axis=1, keepdims=True))
    slope = np.exp(logs)
    slope[np.arange(len(y)), y] -= 1.0
    return -float(logs[np.arange(len(y)), y].sum()), {"w": x.T @ slope}


class Network(nn.Module):
    """A classifier of the researcher's own."""

    def __init__(self):
        super().__init__()
        torch.manual_seed(0)
        self.body = nn.Sequential(nn.Linear(4, 8), nn.BatchNorm1d(8), nn.Linear(8, 3))

    def forward(self, x):
        return self.body(x)


def make_loader():
    x, y = map(torch.from_numpy, TORCH_DATA)
    return list(zip(x.split(24), y.split(24), strict=True))


def by_fit(method, **more):
    async def train(place):
        wish = {**WISHES[method], "batch": 16, "epochs": 2, **more}
        model = ArrayModel({"w": np.zeros((4, 3))}, softmax_loss)
        return await stoilo.learn.fit(method, model, split(*DATA, 3), place, **wish)

    return train


async def dataset_of_the_thesis(place):
    trainer = await stoilo.ml.DPBGDTrainer(
        place, Network(), nn.functional.cross_entropy, *ADAM, TORCH_DATA
    )
    for _ in range(2):
        await trainer.train_epoch()
    await trainer.close()
    return trainer


async def loader_of_2025(place):
    async with stoilo.ddl.DPBGDTrainer(
        place, Network(), nn.CrossEntropyLoss(), *ADAM
    ) as trainer:
        await trainer.epoch(make_loader())
        works = await trainer.epoch_create_work(make_loader())
        await trainer.epoch_aggregate_results(works)
    return trainer


def by_mix(**mix):
    async def train(place):
        model = ArrayModel({"w": np.zeros((4, 3))}, softmax_loss)
        found = await stoilo.learn.parallel(
            model, DATA, place, nodes=4, block_size=8, epochs=2, **mix
        )
        assert not found.disputes
        return found.trained

    return train


PRIVATE = TrainerOptions(privacy=Privacy(clip=1.0, noise=0.05, seed=7))
TRAININGS = {method: by_fit(method) for method in METHODS} | {
    "ssp in rounds": by_fit("ssp", staleness=0),
    "downpour, own weights": by_fit("downpour", fetch=2),
    "DPBGDTrainer.train_epoch": dataset_of_the_thesis,
    "DPBGDTrainer.epoch": loader_of_2025,
    "sync, private": by_fit("sync", rate=0.1, options=PRIVATE),
    "dpbgd, by speed": by_fit("dpbgd", block=8, options=TrainerOptions(by_speed=True)),
    "parallel, two owners": by_mix(redundancy=2, rule=Sgd(0.5)),
    "parallel, double buffering": by_mix(operator="double buffering", rule=Sgd(0.5)),
    "parallel, gossip": by_mix(operator="gossip", rate=0.5),
}


# What comes out does not depend on who answers first.
IN_ROUNDS = {
    *("dpbgd", "sync", "fedavg", "diloco", "sandblaster", "logistic", "ssp in rounds"),
    *("DPBGDTrainer.train_epoch", "DPBGDTrainer.epoch", "sync, private"),
    *("parallel, two owners", "parallel, double buffering", "parallel, gossip"),
}
AS_THEY_COME = {"vcasgd", "downpour", "downpour, own weights", "ssp", "dpbgd, by speed"}


def test_every_method_is_listed():
    assert set(TRAININGS) == IN_ROUNDS | AS_THEY_COME


@functools.cache
def in_threads(name):
    async def train():
        async with LocalBackend() as place:
            return await TRAININGS[name](place)

    return asyncio.run(train())


def numbers_of(name, trained):
    """Return the weights; the epochs' losses where Adam follows what is rounding alone.

    A bias before BatchNorm has no other gradient.
    """
    if name.startswith("DPBGDTrainer"):
        return np.array([epoch.average_loss for epoch in trained.epochs])
    return flatten(trained.snapshot.parameters)


def gap_to_threads(name, trained):
    """Return how far the result is from that of threads, 0 where nothing is promised."""
    if name in AS_THEY_COME:
        return 0.0
    return np.abs(numbers_of(name, trained) - numbers_of(name, in_threads(name))).max()


def lossy_hosts():
    host = SimulatedHost(loss=0.1, stall=0.2)
    return SimulatedBackend([host] * 3)


@pytest.mark.parametrize("open_place", [LocalBackend, lossy_hosts])
@pytest.mark.parametrize("name", TRAININGS)
def test_trainer_learns_without_a_server(name, open_place):
    async def train():
        async with open_place() as place:
            return await TRAININGS[name](place)

    trained = asyncio.run(train())
    first, last = trained.epochs
    assert last.average_loss < first.average_loss
    assert gap_to_threads(name, trained) == 0.0


def test_control_another_seed_is_another_result():
    other = asyncio.run(by_fit("sync", seed=5, batch=5)(None))
    assert gap_to_threads("sync", other) > 1e-4


@pytest.fixture(scope="module")
def deployment(tmp_path_factory):
    data = tmp_path_factory.mktemp("trainers") / "data"
    with Deployment(data, volunteers=2) as running:
        yield running


BY_TWO = CreateOptions(2)
"""The engine gives no account two copies of a task: each goes to both hosts."""


@dataclass(frozen=True)
class Seen:
    """What was trained, its tasks where they ended, and their traces at the server."""

    trained: object
    tasks: list
    leaves: int
    copies: dict

    def done(self):
        return [task for task in self.tasks if task.state == "succeeded"]

    def hosts(self, task):
        copies = self.copies[f"{task.task_id}_{task.attempt}"]
        return {copy.host for copy in copies}

    def attempts(self):
        """Return how many attempts were logged, those before a task's last one too."""
        return sum(task.attempt - (not task.logged) for task in self.tasks)


async def train_there(deployment, train):
    """Let `train` run on two hosts, and return what is seen of it."""
    journal = Journal(deployment.data.parent / "journal")
    leaves = count_work_leaves(deployment.line.http)
    async with stoilo.connect(deployment.line.connection, journal=journal) as conn:
        before = {entry.task_id for entry in conn.recent_tasks(1000)}
        async with ServerBackend(conn, BY_TWO) as place:
            trained = await train(place)
        fresh = {entry.task_id for entry in conn.recent_tasks(1000)} - before
        tasks = [await conn.restore_task(one).status() for one in fresh]
    leaves = count_work_leaves(deployment.line.http) - leaves
    return Seen(trained, tasks, leaves, successes(read_copies(deployment.data)))


def read_deadlines(data):
    """Return the deadline of each workunit's copies, s."""
    path = data / "engine" / "engine.sqlite"
    with sqlite3.connect(f"file:{path}?mode=ro", uri=True, timeout=60) as database:
        return dict(database.execute("select name, delay_bound_s from engine_workunit"))


@pytest.mark.slow
@pytest.mark.parametrize("name", TRAININGS)
def test_trainer_learns_in_the_jail_and_every_attempt_has_its_leaf(deployment, name):
    seen = asyncio.run(train_there(deployment, TRAININGS[name]))
    first, last = seen.trained.epochs
    assert last.average_loss < first.average_loss
    assert gap_to_threads(name, seen.trained) < 1e-5
    assert len(seen.done()) >= sum(
        epoch.accepted_tasks for epoch in seen.trained.epochs
    )
    assert all(task.logged for task in seen.done())
    assert seen.leaves == seen.attempts() >= len(seen.done())
    assert all(len(seen.hosts(task)) == 2 for task in seen.done())
    assert 0.0 < last.waiting < 1.0  # volunteers say how long they computed
    if name == "dpbgd, by speed":  # the first answers were given the server's own time
        asked = read_deadlines(deployment.data)
        given = {asked[f"{task.task_id}_{task.attempt}"] for task in seen.done()}
        assert given == {LEAST_S, BY_TWO.delay_bound_s}
    wanted = [epoch.epsilon for epoch in in_threads(name).epochs]
    assert [epoch.epsilon for epoch in seen.trained.epochs] == wanted
    assert (None not in wanted) == name.endswith("private")  # epochs cost ε, or none
