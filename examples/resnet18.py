"""ResNet18 of one's own source, trained by volunteers with the thesis's trainer.

    python examples/resnet18.py                      # in threads here
    python examples/resnet18.py --connect FILE       # FILE: a server's connection file

The network is He et al. 2015 (table 1, 18 layers) with the stem that images of 32 x 32 need:
a 3 x 3 convolution and no pooling before the blocks; 11.2 million parameters, 20 layers of
BatchNorm. Images are synthetic, so that nothing is downloaded.
"""

from __future__ import annotations

import argparse
import asyncio
import math

import torch
from torch import nn

import stoilo
from stoilo import learn, ml
from stoilo.learn.trainers.options import Place

__all__ = ["BasicBlock", "ResNet", "make_images", "make_resnet18", "train"]


class BasicBlock(nn.Module):
    """Two convolutions of 3 x 3, added to their input.

    Args:
        inputs: channels that come in.
        width: channels that go out.
        stride: of the first convolution; 2 halves height and width.
    """

    def __init__(self, inputs: int, width: int, stride: int = 1) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(inputs, width, 3, stride, padding=1, bias=False)
        self.bn1 = nn.BatchNorm2d(width)
        self.conv2 = nn.Conv2d(width, width, 3, padding=1, bias=False)
        self.bn2 = nn.BatchNorm2d(width)
        self.shortcut: nn.Module = nn.Identity()
        if stride != 1 or inputs != width:
            self.shortcut = nn.Sequential(
                nn.Conv2d(inputs, width, 1, stride, bias=False), nn.BatchNorm2d(width)
            )

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Return features (samples, width, height / stride, width / stride)."""
        out = torch.relu(self.bn1(self.conv1(x)))
        return torch.relu(self.bn2(self.conv2(out)) + self.shortcut(x))


class ResNet(nn.Module):
    """A residual network for small images.

    Args:
        blocks: basic blocks of each of the four groups; (2, 2, 2, 2) is ResNet18.
        classes: how many there are.
        width: channels of the first group; each further group has twice as many.
    """

    def __init__(
        self, blocks: tuple[int, ...], classes: int = 10, width: int = 64
    ) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(3, width, 3, padding=1, bias=False)
        self.bn1 = nn.BatchNorm2d(width)
        groups, inputs = [], width
        for group, count in enumerate(blocks):
            outputs = width << group
            for block in range(count):
                stride = 2 if group and not block else 1
                groups.append(BasicBlock(inputs, outputs, stride))
                inputs = outputs
        self.blocks = nn.Sequential(*groups)
        self.fc = nn.Linear(inputs, classes)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Return scores (samples, classes) of images (samples, 3, height, width)."""
        out = self.blocks(torch.relu(self.bn1(self.conv1(x))))
        scores: torch.Tensor = self.fc(out.mean(dim=(2, 3)))
        return scores


def make_resnet18(classes: int = 10) -> ResNet:
    """Return ResNet18 with random weights."""
    return ResNet((2, 2, 2, 2), classes)


def make_images(
    samples: int, classes: int = 10, size: int = 32, seed: int = 0
) -> tuple[torch.Tensor, torch.Tensor]:
    """Return images (samples, 3, size, size) and labels: waves of one length a class."""
    random = torch.Generator().manual_seed(seed)
    labels = torch.randint(0, classes, (samples,), generator=random)
    ramp = torch.linspace(0.0, 3.0, size)
    phases = 6.28 * torch.rand(samples, 1, generator=random)
    waves = torch.sin((labels[:, None] + 1.0) * ramp + phases)
    images = waves[:, None, None, :].expand(samples, 3, size, size)
    return images + 0.3 * torch.randn(images.shape, generator=random), labels


async def train(
    place: Place, model: nn.Module, data: tuple[torch.Tensor, torch.Tensor], steps: int
) -> list[float]:
    """Train `model` for so many steps of two tasks each; return each step's mean loss."""
    options = learn.DPBGDOptions(tasks=2)
    trainer = await ml.DPBGDTrainer(
        place,
        model,
        nn.functional.cross_entropy,
        torch.optim.SGD,
        {"lr": 0.05, "momentum": 0.9},
        data,
        options=options,
    )
    async with trainer:
        return [(await trainer.train_epoch())[1] for _ in range(steps)]


async def main(
    conn: stoilo.Connection | None,
    *,
    steps: int = 3,
    samples: int = 32,
    size: int = 32,
) -> None:
    """Train for a few steps, print the losses and check what came of it.

    Args:
        conn: a project's volunteers; threads of this process when None.
        steps: at least two.
        samples: images, half of them a task.
        size: height and width of an image.
    """
    torch.manual_seed(0)
    model, data = make_resnet18(), make_images(samples, size=size)
    assert sum(p.numel() for p in model.parameters()) == 11_173_962
    assert sum(isinstance(m, nn.BatchNorm2d) for m in model.modules()) == 20
    losses = await train(conn, model, data, steps)
    print("losses:", " ".join(f"{loss:.3f}" for loss in losses))
    assert all(math.isfinite(loss) for loss in losses)
    assert min(losses[1:]) < losses[0]


async def attend() -> None:
    """Run `main` as the command line says."""
    reader = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    reader.add_argument(
        "--connect", help="a server's connection file; none: threads here"
    )
    reader.add_argument("--steps", type=int, default=3)
    reader.add_argument("--samples", type=int, default=32)
    reader.add_argument("--size", type=int, default=32)
    wish = reader.parse_args()
    sizes = {"steps": wish.steps, "samples": wish.samples, "size": wish.size}
    if wish.connect is None:
        await main(None, **sizes)
        return
    async with stoilo.connect(wish.connect) as conn:
        await main(conn, **sizes)


if __name__ == "__main__":
    asyncio.run(attend())
