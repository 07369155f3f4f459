"""A forward pass in bfloat16: what changes, what stays, and that it costs no accuracy."""

import asyncio

import numpy as np
import pytest
import torch
from torch import nn

from stoilo.learn import LocalBackend, TorchModel, TrainerOptions, fit
from stoilo.learn.core.data import Part
from stoilo.learn.core.models import make_arguments
from stoilo.learn.kernels import torch_models
from tests.support.learning import load_digits

DIGITS = load_digits()
PARTS = [
    Part(DIGITS.images[a : a + 350].astype(np.float32), DIGITS.labels[a : a + 350])
    for a in range(0, 1400, 350)
]
HELD_OUT = torch.from_numpy(DIGITS.test_images.astype(np.float32))
SEEDS = range(5)


class Coarse(nn.Module):
    """A layer whose outputs keep their signs alone: the control of a loss that shows."""

    def forward(self, x):
        return x + (x.sign() - x).detach() if self.training else x


def network(seed, *more):
    torch.manual_seed(seed)
    return nn.Sequential(nn.Linear(64, 32), *more, nn.ReLU(), nn.Linear(32, 10))


def differentiate(*, autocast):
    model = TorchModel(network(0), nn.functional.cross_entropy, autocast=autocast)
    given = make_arguments(model, model.first(), PARTS[0], {"seed": 0})
    return torch_models.gradient(given), torch_models.evaluate(given)


def test_gradient_is_near_another_and_evaluation_the_same():
    (ours, tried), (theirs, usual) = (
        differentiate(autocast=True),
        differentiate(autocast=False),
    )
    for name, slope in theirs["tensors"].items():
        gap = np.linalg.norm(ours["tensors"][name] - slope) / np.linalg.norm(slope)
        assert 1e-4 < gap < 3e-2
        assert ours["tensors"][name].dtype == np.float32
    assert tried == usual


def test_model_without_it_sends_what_it_always_sent():
    """Keys of tasks and captured calls stay as they are."""
    model = TorchModel(network(0), nn.functional.cross_entropy)
    assert set(model.constants()) == {"model", "loss", "reduction"}


async def train(seed, *more, autocast=False):
    model = TorchModel(
        network(seed, *more), nn.functional.cross_entropy, autocast=autocast
    )
    options = TrainerOptions(seed=seed, home_checks=0.0)
    async with LocalBackend() as place:
        trained = await fit(
            "sync", model, PARTS, place, epochs=6, batch=35, rate=0.1, seed=seed,
            options=options,
        )  # fmt: skip
    with torch.no_grad():
        found = trained.model.eval()(HELD_OUT).argmax(1).numpy()
    return float((found == DIGITS.test_labels).mean())


@pytest.fixture(scope="module")
def usual():
    return np.array([asyncio.run(train(seed)) for seed in SEEDS])


def gap_in_errors(usual, other):
    """Return the mean loss of accuracy, and the standard error of such a mean."""
    return usual.mean() - other.mean(), usual.std(ddof=1) / np.sqrt(len(usual))


def test_accuracy_is_that_of_float32_within_the_noise_of_five_seeds(usual):
    halved = np.array([asyncio.run(train(seed, autocast=True)) for seed in SEEDS])
    gap, noise = gap_in_errors(usual, halved)
    assert usual.mean() > 0.9
    assert gap <= 2 * noise


def test_control_a_coarser_forward_pass_loses_more_than_the_noise(usual):
    coarse = np.array([asyncio.run(train(seed, Coarse())) for seed in SEEDS])
    gap, noise = gap_in_errors(usual, coarse)
    assert gap > 2 * noise
