"""Calls that hold modules and optimisers; whole numbers, so that every sum is exact."""

from collections import OrderedDict
from dataclasses import dataclass, field

import torch
import torch.nn.functional as F
from torch import nn


def whole(module):
    """Give a module small whole numbers as weights."""
    with torch.no_grad():
        for number, weight in enumerate(module.parameters()):
            values = torch.arange(weight.numel()) % 5 - 2 + number % 3
            weight.copy_(values.reshape(weight.shape))
    return module


def double(x):
    return 2 * x


class Base(nn.Module):
    scale = 3

    def __init__(self, width=2):
        super().__init__()
        self.lin = nn.Linear(2, width)
        self._calls = []

    def forward(self, x):
        self._calls.append(len(x))
        return double(self.lin(x)) * self.scale


class Derived(Base):
    def __init__(self):
        super().__init__(3)
        self.back = nn.Linear(3, 2, bias=False)
        self.table = nn.ModuleDict({"a": Base(), "b": nn.Identity()})
        self.register_buffer("offset", torch.tensor([1.0, 2.0]))
        self.act = F.relu

    def forward(self, x):
        hidden = self.back(self.act(super().forward(x)))
        return self.table["b"](self.table["a"](hidden)) + self.offset

    @property
    def calls(self):
        return self._calls, self.table["a"]._calls


class Tied(nn.Module):
    def __init__(self):
        super().__init__()
        block = nn.Linear(2, 2)
        self.blocks = nn.ModuleList([block, nn.ReLU(), block])
        self.last = nn.Linear(2, 2)
        self.last.weight = block.weight

    def forward(self, x):
        for block in self.blocks:
            x = block(x)
        return self.last(x)


@dataclass
class Trainer:
    model: nn.Module
    optimizer: torch.optim.Optimizer
    history: list = field(default_factory=list)

    def step(self, x, y):
        loss = (self.model(x) - y).sum()
        self.optimizer.zero_grad()
        loss.backward()
        self.optimizer.step()
        self.history.append(loss.item())
        return loss


GLOBAL = whole(nn.Sequential(OrderedDict(first=nn.Linear(2, 2), act=nn.ReLU())))
X = torch.tensor([[1.0, 2.0], [-1.0, 0.0]])


def apply(kwargs):
    model = kwargs["model"]
    return model(kwargs["x"]), model.state_dict(), model.training


def calls(kwargs):
    kwargs["model"](kwargs["x"])
    return kwargs["model"].calls


def names(kwargs):
    model = kwargs["model"]
    return [name for name, _ in model.named_parameters()], [
        type(part).__name__ for part in model.modules()
    ]


def tied(kwargs):
    model = kwargs["model"]
    model.last.weight.data += 1
    return model(kwargs["x"]), model.blocks[0] is model.blocks[2], len(list(model.parameters()))


def train(kwargs):
    trainer = kwargs["trainer"]
    for _ in range(3):
        trainer.step(X, torch.zeros(2, 2))
    return trainer.history, trainer.model.state_dict(), trainer.optimizer.state_dict()


def use_global(kwargs):
    return GLOBAL(kwargs["x"]), GLOBAL.first.weight is kwargs["weight"]


def kinds(kwargs):
    return {key: type(value).__name__ for key, value in kwargs.items()}


def gradients(kwargs):
    kwargs["w"].mul(kwargs["x"]).sum().backward()
    return kwargs["w"].grad, kwargs["w"].is_leaf, kwargs["x"].requires_grad


def make_trainer(kind, **options):
    model = whole(nn.Linear(2, 2))
    trainer = Trainer(model, kind(model.parameters(), **options))
    trainer.step(X, torch.zeros(2, 2))
    trainer.optimizer.zero_grad()
    return trainer


frozen = whole(Base())
frozen.lin.bias.requires_grad_(False)

CASES = [
    ("own module", apply, {"model": whole(Base()), "x": X}),
    ("derived module", apply, {"model": whole(Derived()).eval(), "x": X}),
    ("frozen weight", apply, {"model": frozen, "x": X}),
    ("private lists", calls, {"model": whole(Derived()), "x": X}),
    ("names", names, {"model": Derived()}),
    ("tied weights", tied, {"model": whole(Tied()), "x": X}),
    ("library module", apply, {"model": whole(nn.Linear(2, 3)).double(), "x": X.double()}),
    ("momentum", train, {"trainer": make_trainer(torch.optim.SGD, lr=0.5, momentum=0.5)}),
    ("global module", use_global, {"x": X, "weight": GLOBAL.first.weight}),
    ("gradients", gradients, {"w": torch.ones(2, requires_grad=True), "x": X[0]}),
    ("kinds", kinds, {
        "parameter": nn.Parameter(X), "tensor": X, "size": X.shape, "state": frozen.state_dict(),
        "dtype": torch.float16, "bfloat": X.bfloat16(), "flags": X > 0, "z": X.to(torch.cfloat),
    }),
]  # fmt: skip
