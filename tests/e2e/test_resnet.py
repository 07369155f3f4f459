"""Networks of the researcher's own source through gate, log and jail on two hosts."""

import asyncio
import importlib.util
import sys
from pathlib import Path

import pytest
import torch
from torch import nn

import stoilo
from stoilo.client.session import Journal
from stoilo.learn import (
    FedAvgTrainer,
    FederatedSettings,
    LocalWork,
    TorchModel,
    TrainerOptions,
)
from stoilo.testing.deployment import Deployment


class Odd(nn.Module):
    """Two inputs, dropout, BatchNorm, tied and frozen weights, a buffer that is none."""

    def __init__(self):
        super().__init__()
        self.words, self.side = nn.Embedding(12, 8, sparse=True), nn.Linear(3, 8)
        self.norm, self.drop = nn.BatchNorm1d(8, momentum=None), nn.Dropout(0.5)
        self.out = nn.Linear(8, 12, bias=False)
        self.out.weight = self.words.weight
        self.side.bias.requires_grad_(requires_grad=False)
        self.register_buffer("nothing", None)

    def forward(self, words, side):
        middle = self.norm(self.words(words) + self.side(side))
        return {"scores": self.out(self.drop(torch.relu(middle))), "middle": middle}


def odd_loss(answer, y):
    scores = nn.functional.cross_entropy(answer["scores"], y)
    return scores + 0.01 * answer["middle"].square().mean()


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


def train_resnet(example, steps=STEPS):
    torch.manual_seed(0)
    model, data = example.make_resnet18(), example.make_images(24, size=16)

    async def train(place):
        return await example.train(place, model, data, steps)

    return model, data, train


@pytest.fixture
def one_thread():
    """As in the jail: sums are added up in the same order."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


@pytest.mark.slow
@pytest.mark.usefixtures("one_thread")
def test_resnet18_learns_in_the_jail_as_it_does_here(deployment):
    example = load_example()
    model, _, train = train_resnet(example)
    losses, leaves = asyncio.run(train_there(deployment, train))
    assert sum(p.numel() for p in model.parameters()) == 11_173_962
    assert losses[-1] < losses[0]
    assert len(leaves) == len(set(leaves.values())) == 2 * STEPS
    assert int(model.bn1.num_batches_tracked) == STEPS
    _, _, train_here = train_resnet(example, steps=2)
    first, second = asyncio.run(train_here(None))
    assert first == pytest.approx(losses[0], rel=1e-5)
    assert second == pytest.approx(losses[1], rel=2e-2)  # rounding grows with each step


async def train_odd(place, seed=0):
    """One round of local steps, which draw; the module afterwards, as arrays."""
    torch.manual_seed(0)
    module, words = Odd(), torch.arange(24) % 12
    side = torch.randn(24, 3, generator=torch.Generator().manual_seed(1))
    work = LocalWork(rate=0.2, batch=8, steps=4)
    async with FedAvgTrainer(
        place, TorchModel(module, odd_loss), ((words, side), words),
        FederatedSettings(1, work, seed=seed),
        options=TrainerOptions(tasks=2),
    ) as trainer:  # fmt: skip
        trained = await trainer.train()
    return {**trained.snapshot.parameters, **trained.snapshot.buffers}


@pytest.mark.slow
def test_odd_module_draws_and_learns_in_the_jail_as_it_does_here(deployment):
    there, leaves = asyncio.run(train_there(deployment, train_odd))
    here, other = asyncio.run(train_odd(None)), asyncio.run(train_odd(None, seed=1))
    assert len(leaves) == len(set(leaves.values())) == 2
    assert set(there) == {"words.weight", "side.weight", *(
        f"norm.{name}" for name in ("weight", "bias", "running_mean", "running_var",
                                    "num_batches_tracked"))}  # fmt: skip
    for name, array in here.items():
        assert there[name] == pytest.approx(array, rel=1e-4, abs=1e-5), name
    assert there["words.weight"] != pytest.approx(other["words.weight"], abs=1e-3)
