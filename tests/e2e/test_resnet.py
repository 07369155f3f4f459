"""Networks of the researcher's own source through gate, log and jail on two hosts."""

import asyncio
import importlib.util
import sys
from pathlib import Path

import pytest
import torch

import stoilo
from stoilo.client.journal import Journal
from stoilo.testing.deployment import Deployment

EXAMPLE = Path(__file__).parents[2] / "examples" / "resnet18.py"
STEPS = 3


def load_example():
    spec = importlib.util.spec_from_file_location("resnet18_example", EXAMPLE)
    module = sys.modules[spec.name] = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture(scope="module")
def deployment(tmp_path_factory):
    with Deployment(
        tmp_path_factory.mktemp("resnet") / "data", volunteers=2
    ) as running:
        yield running


async def train_there(deployment, train):
    """Return what `train` returns, and the leaves of all attempts of its tasks."""
    journal = Journal(deployment.data.parent / "journal")
    async with stoilo.connect(deployment.line.connection, journal=journal) as conn:
        before = {entry.task_id for entry in conn.recent_tasks(1000)}
        found = await train(conn)
        fresh = [e.task_id for e in conn.recent_tasks(1000) if e.task_id not in before]
        states = [await conn.restore_task(task_id).status() for task_id in fresh]
    return found, {(s.task_id, s.attempt): s.log_index for s in states if s.logged}


def train_resnet(example):
    torch.manual_seed(0)
    model, data = example.make_resnet18(), example.make_images(24)

    async def train(place):
        return await example.train(place, model, data, STEPS)

    return model, data, train


@pytest.mark.slow
def test_resnet18_learns_in_the_jail_as_it_does_here(deployment):
    example = load_example()
    model, (images, _), train = train_resnet(example)
    losses, leaves = asyncio.run(train_there(deployment, train))
    assert sum(p.numel() for p in model.parameters()) == 11_173_962
    assert losses[-1] < losses[0]
    assert len(leaves) == len(set(leaves.values())) == 2 * STEPS
    assert int(model.bn1.num_batches_tracked) == STEPS
    here, _, train_here = train_resnet(example)
    assert asyncio.run(train_here(None)) == pytest.approx(losses, rel=1e-3)
    with torch.no_grad():
        assert torch.allclose(here.eval()(images), model.eval()(images), atol=1e-2)
