"""A network with BatchNorm, trained in several parts: is it good outside of training?

Check 2 of the page on DPBGD: what volunteers train must be, in evaluation, what one
computer makes of the same batches. The trainer of 2025 left running statistics at home.
"""

import copy

import torch
from torch import nn

from stoilo.learn.trainers.dpbgd import DPBGDOptions, DPBGDTrainer
from tests.support.learning import load_digits

LOSS = nn.functional.cross_entropy
SIZES = [150, 100, 50]
EPOCHS = 4
OPTIONS = {"lr": 0.5, "momentum": 0.9}


class Digits(nn.Module):
    """Two convolutions, each normalised; the second one's momentum is its own."""

    def __init__(self):
        super().__init__()
        self.one, self.two = nn.Conv2d(1, 6, 3, 2), nn.Conv2d(6, 8, 2)
        self.norms = nn.ModuleList([nn.BatchNorm2d(6), nn.BatchNorm2d(8, momentum=0.3)])
        self.out = nn.Linear(8, 10)

    def forward(self, x):
        x = torch.relu(self.norms[0](self.one(x)))
        return self.out(torch.relu(self.norms[1](self.two(x))).mean(dim=(2, 3)))


def make_digits():
    torch.manual_seed(0)
    digits, count = load_digits(), sum(SIZES)
    images, test = (
        torch.tensor(values).reshape(-1, 1, 8, 8)
        for values in (digits.images[:count], digits.test_images)
    )
    return Digits().double(), images, torch.tensor(digits.labels[:count]), test


def pass_over(model, x, y):
    """Add up gradients batch by batch; return what each layer normalised."""
    seen = [[] for _ in model.norms]
    handles = [
        norm.register_forward_hook(
            lambda _, given, __, kept=kept: kept.append(given[0])
        )
        for norm, kept in zip(model.norms, seen, strict=True)
    ]
    for a, b in zip(x.split(SIZES), y.split(SIZES), strict=True):
        (LOSS(model(a), b) * len(a) / len(x)).backward()
    for handle in handles:
        handle.remove()
    return [torch.cat(kept).detach() for kept in seen]


def train_alone(model, x, y):
    """One computer: the same batches one after the other, statistics of all samples."""
    optimizer = torch.optim.SGD(model.parameters(), **OPTIONS)
    for _ in range(EPOCHS):
        before = [copy.deepcopy(norm.state_dict()) for norm in model.norms]
        optimizer.zero_grad()
        seen = pass_over(model, x, y)
        for norm, kept, values in zip(model.norms, before, seen, strict=True):
            norm.load_state_dict(kept)
            with torch.no_grad():
                norm(values)
        optimizer.step()
    return model.eval()


async def train_in_parts(model, x, y):
    batches = list(zip(x.split(SIZES), y.split(SIZES), strict=True))
    async with DPBGDTrainer(
        None, model, LOSS, torch.optim.SGD, OPTIONS, options=DPBGDOptions(in_flight=1)
    ) as trainer:
        for _ in range(EPOCHS):
            model, _ = await trainer.epoch(batches)
    return model.eval()


async def test_evaluation_after_training_in_parts_is_as_after_training_alone():
    model, x, y, test = make_digits()
    alone = train_alone(copy.deepcopy(model), x, y)
    found = await train_in_parts(copy.deepcopy(model), x, y)
    wanted, start = alone(test), model.eval()(test)
    assert torch.allclose(found(test), wanted, atol=1e-9)
    assert (start - wanted).abs().max() > 0.1


async def test_control_statistics_that_stay_at_home_spoil_the_evaluation():
    model, x, y, test = make_digits()
    home = {name: b.clone() for name, b in model.named_buffers()}
    found = await train_in_parts(model, x, y)
    wanted = found(test)
    found.load_state_dict(home, strict=False)
    assert (found(test) - wanted).abs().max() > 0.1
