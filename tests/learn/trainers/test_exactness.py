"""A distributed step against the same step here, over batches as unequal as can be."""

import pytest
import torch
from torch import nn

import stoilo

LOSS = nn.functional.cross_entropy
BOUNDS = {torch.float32: 1e-6, torch.float64: 1e-12}


def make_data(samples, kind):
    """Return samples whose first one is far from the others: its gradient is large."""
    generator = torch.Generator().manual_seed(0)
    x = torch.randn(samples, 6, generator=generator, dtype=torch.float64)
    y = x[:, :3].argmax(1)
    y[0] = (y[0] + 1) % 3
    return x.to(kind), y


def make_model(kind):
    torch.manual_seed(3)
    return nn.Sequential(nn.Linear(6, 8), nn.Tanh(), nn.Linear(8, 3)).to(kind)


def gradient_of(model, x, y):
    found = torch.autograd.grad(LOSS(model(x), y), list(model.parameters()))
    return torch.cat([part.ravel() for part in found])


def split(sizes, kind):
    x, y = make_data(sum(sizes), kind)
    return list(zip(x.split(sizes), y.split(sizes), strict=True))


async def step(sizes, kind):
    """Return by how much a step of rate 1 moved the model: its gradient."""
    model = make_model(kind)
    async with stoilo.ddl.DPBGDTrainer(
        None, model, LOSS, torch.optim.SGD, {"lr": 1.0}
    ) as trainer:
        _, loss = await trainer.epoch(split(sizes, kind))
    pairs = zip(make_model(kind).parameters(), model.parameters(), strict=True)
    return torch.cat([(a - b).detach().ravel() for a, b in pairs]), loss


def error_of(found, sizes, kind):
    whole = gradient_of(make_model(kind), *make_data(sum(sizes), kind))
    return float((found - whole).norm() / whole.norm())


@pytest.mark.parametrize("kind", BOUNDS)
@pytest.mark.parametrize(
    "sizes", [[701], [1, 700], [700, 1], [7, 20, 33, 1], [700, 700, 700, 1]]
)
async def test_step_is_the_step_over_all_samples(sizes, kind):
    found, loss = await step(sizes, kind)
    assert error_of(found, sizes, kind) <= BOUNDS[kind]
    alone = LOSS(
        make_model(kind)(make_data(sum(sizes), kind)[0]), make_data(sum(sizes), kind)[1]
    )
    assert loss == pytest.approx(alone.item(), rel=BOUNDS[kind])


@pytest.mark.parametrize("kind", BOUNDS)
def test_mean_of_the_batches_means_is_another_step(kind):
    """The control of the test above: what the trainer of 2025 did."""
    sizes, model = [1, 700], make_model(kind)
    means = [gradient_of(model, x, y) for x, y in split(sizes, kind)]
    assert error_of(sum(means) / 2, sizes, kind) > 1.0
