"""What a host gets for a task of a training, as a real server keeps it for hosts."""

import asyncio
import sqlite3
import time
from contextlib import closing

import numpy as np
import pytest
from torch import nn

import stoilo
from stoilo.client.session import Journal
from stoilo.learn.backends.server import ServerBackend
from stoilo.learn.core.data import split
from stoilo.learn.core.models import TorchModel
from stoilo.learn.driver.run import Run
from stoilo.learn.methods.optimizers import Sgd
from stoilo.learn.methods.synchronous import Synchronous, SynchronousSettings
from stoilo.testing.deployment import Deployment

pytestmark = [pytest.mark.slow, pytest.mark.timeout(300)]
BODIES = """select sum(f.size) from engine_workunit_file w join engine_file f
on f.digest = w.digest where w.open_name in ('admission', 'proof', 'task_module', 'arguments')
group by w.workunit_id order by w.workunit_id desc"""
TASKS = 3


class Network(nn.Module):
    """A classifier of the researcher's own."""

    def __init__(self, width):
        super().__init__()
        self.body = nn.Sequential(
            nn.Linear(4, width), nn.BatchNorm1d(width), nn.Linear(width, 3)
        )

    def forward(self, x):
        return self.body(x)


@pytest.fixture(scope="module")
def deployment(tmp_path_factory):
    """A server without volunteers: what it has for them stays there."""
    with Deployment(tmp_path_factory.mktemp("bodies") / "data") as running:
        yield running


def read_bodies(deployment):
    """Return each task's bytes, blobs left out, the newest task first."""
    path = deployment.data / "engine" / "engine.sqlite"
    with closing(sqlite3.connect(f"file:{path}?mode=ro", uri=True)) as engine:
        return [size for (size,) in engine.execute(BODIES)]


def connect(deployment):
    journal = Journal(deployment.data.parent / "journal")
    return stoilo.connect(deployment.line.connection, journal=journal)


async def order_gradients(deployment, width):
    model = TorchModel(Network(width), nn.functional.cross_entropy)
    x, y = np.zeros((6, 4), np.float32), np.zeros(6, np.int64)
    parts = split(x, y, TASKS)
    first = model.first()
    sizes, settings = [len(part) for part in parts], SynchronousSettings(epochs=1)
    method = Synchronous(first, sizes, Sgd(0.1), settings)
    async with connect(deployment) as conn, ServerBackend(conn) as backend:
        await Run(method, model, parts, backend).order()


def whole_network(kwargs):
    return len(kwargs["model"].body)


async def order_whole(deployment, width):
    async with connect(deployment) as conn:
        for number in range(TASKS):
            call = {"model": Network(width), "number": number}
            await conn.create_task(whole_network, call).submit()


def measure(deployment, order, width):
    """Return the bytes of each task that `order` orders, once the engine has them all."""
    before, end = len(read_bodies(deployment)), time.monotonic() + 120.0
    asyncio.run(order(deployment, width))
    while len(bodies := read_bodies(deployment)) < before + TASKS:
        assert time.monotonic() < end, "the tasks are with the engine"
        time.sleep(0.1)
    return bodies[:TASKS]


def test_task_of_a_network_a_hundred_times_as_large_is_as_large(deployment):
    small = measure(deployment, order_gradients, 8)
    large = measure(deployment, order_gradients, 800)
    assert min(small) > 4096  # there is a source, an admission, and a proof in it
    assert max(large) - min(small) < 1024


def test_task_that_carries_its_network_grows_with_it(deployment):
    small = measure(deployment, order_whole, 8)
    large = measure(deployment, order_whole, 800)
    assert min(large) - max(small) > 16 * 1024
