"""Each layout in a real cell: workers whose torch is sealed, the researcher's own source."""

import asyncio
import os
import signal

import pytest
import torch
from torch import nn

from stoilo import learn
from stoilo.client.results import UserError
from stoilo.core.errors import UnreachableError
from stoilo.learn.cells.cell import cell
from stoilo.learn.cells.data import Data
from stoilo.learn.cells.pipeline import Pipeline
from stoilo.learn.cells.tensor import Tensor
from tests.support.cells import TORCH, FatedSlices

SLICES = Data(shard=True)
LAYOUTS = [Data(), SLICES, Pipeline((2,)), Tensor({"0": "column", "2": "row"})]


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


@pytest.mark.parametrize("layout", LAYOUTS, ids=str)
async def test_members_together_train_as_one_thread(layout):
    async with learn.LocalBackend(1) as threads:
        wanted = await train(threads)
    async with cell(2, layout) as place:
        found = await train(place)
        timeline = place.spans
    assert torch.allclose(found, wanted, rtol=0, atol=1e-6)
    assert bool(timeline) == isinstance(layout, Pipeline)


@pytest.mark.slow
@pytest.mark.parametrize("rank", [0, 1])
async def test_slices_of_a_member_killed_amid_an_order_end_in_the_same_bits(
    tmp_path, rank
):
    async with cell(2, SLICES) as place:
        undisturbed = await train(place)
    async with cell(
        2, FatedSlices(str(tmp_path), "kill", "3", rank), program=TORCH
    ) as place:
        found = await train(place)
        assert place.generation == 2
    assert torch.equal(found, undisturbed)


@pytest.mark.slow
@pytest.mark.parametrize("layout", [SLICES, Data()], ids=["in slices", "whole"])
async def test_model_of_which_a_member_can_hold_two_trains_in_slices_alone(layout):
    wide, deep = 1000, 8
    model = nn.Sequential(*[nn.Linear(wide, wide, bias=False) for _ in range(deep)])
    program = *TORCH[:-1], f"bounded:{2 * deep * wide * wide * 4}"
    given = {"loss": nn.MSELoss(), "epochs": 1, "batch": 8}
    async with cell(4, layout, program=program) as place:
        trained = learn.fit("dpbgd", model, (torch.ones(8, wide),) * 2, place, **given)
        if layout == SLICES:
            await trained
            assert place.generation == 1
        else:
            with pytest.raises(UnreachableError, match="T037"):
                await trained


def can_read(thing, name):
    try:
        return getattr(thing, name) is not None
    except Exception:  # noqa: BLE001 - no task can name what guards raise
        return False


class Prying(nn.Module):
    """Raises how many ways lead from a layer to its weight's memory, to hooks, to members."""

    def __init__(self):
        super().__init__()
        self.layers = nn.Sequential(nn.Linear(6, 8), nn.Tanh(), nn.Linear(8, 3))

    def forward(self, x):
        layer, weight = self.layers[0], self.layers[0].weight
        memory = "untyped_storage", "storage", "data_ptr", "set_", "resize_"
        ways = [(weight, name) for name in (*memory, "_post_accumulate_grad_hooks")]
        ways += [(layer, name) for name in ("_forward_hooks", "_forward_pre_hooks")]
        ways += [(self, name) for name in ("_forward_hooks", "_forward_pre_hooks")]
        ways += [(torch, "distributed"), (torch, "_C")]
        raise ValueError(
            f"of {len(x)} rows: {sum(can_read(*way) for way in ways)} ways"
        )


async def test_source_in_a_cell_reaches_neither_memory_nor_hooks_of_its_slices():
    given = {"loss": lossy, "epochs": 1, "options": learn.TrainerOptions(tries=1)}
    async with cell(2, SLICES) as place:
        with pytest.raises(UserError, match="rows: 0 ways"):
            await learn.fit("dpbgd", Prying(), make_data(), place, **given)
    free = Prying()
    free.layers[0].weight.register_post_accumulate_grad_hook(print)
    with pytest.raises(ValueError, match="rows: 12 ways"):  # no guards here
        free(torch.zeros(2, 6))


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
