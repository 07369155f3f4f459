# /// stoilo-case
# idea = "own layers"
# level = "tensor"
# ///
"""Layers made in functions, called by name, with operators and properties of their own."""
import abc
from functools import partial
from typing import Callable, Optional

import torch
from torch import Tensor, nn


class Layer(nn.Module, abc.ABC):
    @abc.abstractmethod
    def mix(self, x: Tensor) -> Tensor: ...

    def forward(self, x: Tensor) -> Tensor:
        return x + self.scale * self.mix(self.norm(x))

    def __init__(self, width: int, scale: Optional[float] = None) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(width, elementwise_affine=False)
        self.scale = nn.Parameter(torch.tensor(0.5 if scale is None else scale))

    def __len__(self):
        return sum(p.numel() for p in self.parameters())


class TokenMix(Layer):
    def __init__(self, width, tokens):
        super().__init__(width)
        self.dense = nn.Conv1d(tokens, tokens, 1)

    def mix(self, x):
        return self.dense(x)


class ChannelMix(Layer):
    def __init__(self, width, tokens, act: Callable[[Tensor], Tensor] = torch.relu):
        super().__init__(width, scale=0.25)
        self.dense, self.act = nn.Linear(width, width), act

    def mix(self, x):
        return self.act(self.dense(x))


class Mixer(nn.Sequential):
    def __init__(self, width, tokens, kinds):
        super().__init__(*(kind(width, tokens) for kind in kinds))
        self.add_module("out", nn.Flatten())

    @property
    def size(self):
        return {type(part).__name__: len(part) for part in self if isinstance(part, Layer)}


def run(kwargs):
    torch.manual_seed(61)
    gelu = partial(ChannelMix, act=partial(nn.functional.gelu, approximate="tanh"))
    model = Mixer(6, 4, [TokenMix, ChannelMix, gelu, TokenMix])
    head = nn.LazyLinear(2) if kwargs.get("lazy") else nn.Bilinear(24, 24, 2)
    optimizer = torch.optim.Adadelta([*model.parameters(), *head.parameters()], lr=1.0)
    x, y = torch.randn(16, 4, 6), torch.randint(0, 2, (16,))
    losses = []
    for _ in range(12):
        h = model(x)
        loss = nn.functional.cross_entropy(head(h, h), y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    model[0].scale.requires_grad = False
    frozen = [name for name, p in model.named_parameters() if not p.requires_grad]
    return losses, model.size, frozen, repr(model[3]), model.get_submodule("1.dense").out_features
