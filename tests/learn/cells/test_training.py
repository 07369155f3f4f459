"""Trainings on cells whose workers have torch, links and the researcher's own source."""

import asyncio
from pathlib import Path

import pytest
import torch
from torch import nn

from stoilo import learn
from stoilo.client.results import UserError
from stoilo.core.errors import InternalError, PolicyRefusal
from stoilo.learn.cells.cell import cell
from tests.support.cells import TORCH, Fated, Leading, Lying

SCALE = torch.tensor([1.0, 2.0, 0.5, 1.0, 1.0, 3.0])  # travels beside the source


class Net(nn.Module):
    """A researcher's own class."""

    def __init__(self):
        super().__init__()
        self.first, self.second = nn.Linear(6, 8), nn.Linear(8, 3)

    def forward(self, x):
        return self.second(torch.tanh(self.first(x * SCALE)))


def lossy(output, y):
    return nn.functional.cross_entropy(output, y)


def prying(output, _):
    return output.__class__.__base__


def failing(*_):
    raise ValueError("an odd batch")


def make_data():
    generator = torch.Generator().manual_seed(0)
    x = torch.randn(96, 6, generator=generator)
    return x, x[:, :3].argmax(1)


async def train(place, method="dpbgd", loss=lossy, **settings):
    """Return the weights after two epochs."""
    torch.manual_seed(3)
    given = {"loss": loss, "epochs": 2, "batch": 16, **settings}
    found = await learn.fit(method, Net(), make_data(), place, **given)
    return torch.cat([p.detach().ravel() for p in found.model.parameters()])


def find_listening(pid):
    """Return the addresses that a process listens on, hexadecimal, IPv4 in their end."""
    links = [str(one.readlink()) for one in Path(f"/proc/{pid}/fd").iterdir()]
    rows = [
        line.split()
        for name in ("tcp", "tcp6")
        for line in Path(f"/proc/{pid}/net/{name}").read_text().splitlines()
    ]
    return [
        r[1].partition(":")[0][-8:]
        for r in rows
        if f"socket:[{r[9]}]" in links and r[3] == "0A"
    ]


def train_on_threads(*methods):
    async def run():
        async with learn.LocalBackend(1) as place:
            return [await train(place, method) for method in methods]

    return asyncio.run(run())


class Dropping(learn.LocalBackend):
    """Threads that make nothing of one order's gradient."""

    orders = 0

    def _run(self, job):
        ending = super()._run(job)
        self.orders += 1
        if self.orders == 3:
            for array in ending.value["tensors"].values():
                array.fill(0)
        return ending


@pytest.mark.parametrize(
    ("fate", "at", "rank"),
    [("kill", "2", 1)]
    + [
        pytest.param(*one, marks=pytest.mark.slow)
        for one in (
            ("kill", "0", 0),
            ("kill", "5", 0),
            ("stop", "2", 0),
            ("stop", "2", 1),
        )
    ],
)
async def test_weights_are_those_of_threads_whoever_dies_or_hangs(
    tmp_path, fate, at, rank
):
    layout, limits = Fated(str(tmp_path), fate, at, rank), learn.CellLimits(order_s=8.0)
    async with cell(2, layout, limits=limits, program=TORCH) as place:
        # One try: a broken link that was taken for the researcher's error would end it.
        found = await train(place, options=learn.TrainerOptions(tries=1))
        heard = {one for member in place.members for one in find_listening(member.pid)}
        assert (place.generation, heard) == (2, {"0100007F"})
    undisturbed = await asyncio.to_thread(train_on_threads, "dpbgd")
    async with Dropping(1) as dropping:  # no check at home: it may find the lie
        options = learn.TrainerOptions(home_checks=0)
        dropped = await train(dropping, options=options)
    assert torch.equal(found, undisturbed[0])
    assert not torch.equal(found, dropped)


async def test_other_methods_train_as_on_threads_until_the_researchers_code_fails():
    methods = ["vcasgd", "ssp"]
    async with cell(2, Leading(), program=TORCH) as place:
        found = [await train(place, method) for method in methods]
        assert place.generation == 1
        with pytest.raises(UserError, match="an odd batch"):
            await train(place, loss=failing, options=learn.TrainerOptions(tries=1))
    wanted = await asyncio.to_thread(train_on_threads, *methods)
    assert all(map(torch.equal, found, wanted))


async def test_lie_of_a_cell_does_not_count_and_source_that_pries_is_refused():
    async with cell(1, Lying("samples", 7), program=TORCH) as place:
        with pytest.raises(InternalError, match="200 answers") as caught:
            await train(place)
        with pytest.raises(PolicyRefusal, match="__base__"):
            await train(place, loss=prying)
    assert "samples" in str(caught.value)
