"""Each layout in a real cell: workers whose torch is sealed, the researcher's own source."""

import asyncio
import os
import signal

import pytest
import torch
from torch import nn

from stoilo import learn
from stoilo.core.errors import UsageError
from stoilo.learn.cells.cell import cell
from stoilo.learn.cells.data import Data
from stoilo.learn.cells.pipeline import Pipeline
from stoilo.learn.cells.tensor import Tensor

LAYOUTS = [Data(), Pipeline((2,)), Tensor({"0": "column", "2": "row"})]


def lossy(output, y):
    return nn.functional.cross_entropy(output, y)


def make_data(samples=96):
    generator = torch.Generator().manual_seed(0)
    x = torch.randn(samples, 6, generator=generator)
    return x, x[:, :3].argmax(1)


async def train(place, method="dpbgd", samples=96, **given):
    torch.manual_seed(3)
    model = nn.Sequential(nn.Linear(6, 8), nn.Tanh(), nn.Linear(8, 3))
    data = make_data(samples)
    asked = {"loss": lossy, "epochs": 1, "batch": 16, **given}
    found = await learn.fit(method, model, data, place, **asked)
    return torch.cat([p.detach().ravel() for p in found.model.parameters()])


@pytest.mark.parametrize("layout", LAYOUTS, ids=lambda one: type(one).__name__)
async def test_members_together_train_as_one_thread(layout):
    async with learn.LocalBackend(1) as threads:
        wanted = await train(threads)
    async with cell(2, layout) as place:
        found = await train(place)
        timeline = place.spans
    assert torch.allclose(found, wanted, rtol=0, atol=1e-6)
    assert bool(timeline) == isinstance(layout, Pipeline)


async def test_slices_are_refused_where_torch_is_sealed():
    async with cell(1, Data(shard=True)) as place:
        with pytest.raises(UsageError, match="not sealed"):
            await train(place)


async def kill_between_saves(place, rank):
    """Kill a member's worker in the middle of an order, once it has saved something."""
    kept = place.members[rank].inputs.folder.parent / "kept"
    while not any(kept.rglob("*.safetensors")):  # noqa: ASYNC110 - another process's files
        await asyncio.sleep(0.01)
    os.kill(place.members[rank].pid, signal.SIGKILL)


@pytest.mark.slow
async def test_order_of_a_pipeline_goes_on_from_its_saves_in_a_cell():
    steps = {"method": "vcasgd", "samples": 4000, "batch": 2}
    layout = Pipeline((2,), every=50)
    async with cell(2, layout) as place:
        undisturbed = await train(place, **steps)
    async with cell(2, layout) as place:
        killer = asyncio.create_task(kill_between_saves(place, 1))
        found = await train(place, **steps)
        await killer
        assert place.generation == 2
    assert torch.equal(found, undisturbed)
