"""Models, jobs and links of pipelines, and the delayed rule computed in one process."""

from __future__ import annotations

import itertools
import os
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
import torch.distributed as dist
from torch import Tensor, nn

from stoilo.learn.core.models import (
    make_shape,
    read_buffers,
    read_trained,
)
from stoilo.learn.kernels import array_models

kernels: Any = array_models  # task source, without types

__all__ = [
    "GroupLinks",
    "Halting",
    "Task",
    "make_dropping",
    "make_halting",
    "make_job",
    "make_model",
    "make_normed",
    "run_delayed",
]

WIDTH, CLASSES, SAMPLES = 6, 3, 61


@dataclass(frozen=True)
class GroupLinks:
    """What a layout needs of a cell's links."""

    rank: int
    size: int
    group: dist.ProcessGroup
    folder: Path | None = None


def make_model(kind: str = "float64") -> nn.Sequential:
    """Return four blocks of which each may be a stage: cuts (2, 4, 6)."""
    torch.manual_seed(3)
    sizes = [WIDTH, 8, 7, 8, CLASSES]
    layers = [
        one
        for i, o in itertools.pairwise(sizes)
        for one in (nn.Linear(i, o), nn.Tanh())
    ]
    return nn.Sequential(*layers[:-1], nn.Identity()).to(getattr(torch, kind))


def make_normed(kind: str) -> nn.Sequential:
    """Return a model with running values in its second stage: cuts (2,)."""
    torch.manual_seed(4)
    layers = nn.Linear(WIDTH, 8), nn.Tanh(), nn.BatchNorm1d(8), nn.Linear(8, CLASSES)
    return nn.Sequential(*layers).to(getattr(torch, kind))


def make_dropping(kind: str) -> nn.Sequential:
    """Return a model that draws, and writes over its inputs: cuts (1,)."""
    torch.manual_seed(4)
    first, second = nn.Linear(WIDTH, 8), nn.Linear(8, CLASSES)
    layers = first, nn.ReLU(inplace=True), nn.Dropout(0.3), second
    return nn.Sequential(*layers).to(getattr(torch, kind))


class _Halt(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, layer: Halting) -> Tensor:
        ctx.layer = layer
        return x.clone()

    @staticmethod
    def backward(ctx: Any, *slopes: Tensor) -> Any:
        ctx.layer.pass_by("B")
        return slopes[0], None


class Halting(nn.Module):
    """A layer that does nothing, but sends its process a signal once.

    Args:
        phase: ``F`` or ``B``.
        at: how often it is passed in that phase before.
        number: the signal's.
        mark: a file; where it is there, nothing happens.
    """

    def __init__(self, phase: str, at: int, number: int, mark: Path) -> None:
        super().__init__()
        self.phase, self.left, self.number, self.mark = phase, at, number, mark

    def pass_by(self, phase: str) -> None:
        """Count, and halt."""
        self.left -= phase == self.phase
        if self.left < 0 and not self.mark.exists():
            self.mark.write_text(str(os.getpid()))
            os.kill(os.getpid(), self.number)

    def forward(self, x: Tensor) -> Tensor:
        """Return the input."""
        self.pass_by("F")
        found: Tensor = _Halt.apply(x, self)  # type: ignore[no-untyped-call] # torch's
        return found


def make_halting(
    kind: str, stage: int, phase: str, at: int, number: int, mark: Path
) -> nn.Sequential:
    """Return `make_model` with a `Halting` layer in one of its four stages."""
    model = make_model(kind)
    model[2 * stage + 1] = nn.Sequential(
        Halting(phase, at, number, mark), model[2 * stage + 1]
    )
    return model


def cross_entropy(output: Tensor, y: Tensor) -> Tensor:
    """Return the mean loss."""
    return nn.functional.cross_entropy(output, y)


def make_job(
    model: nn.Module, samples: int = SAMPLES, **settings: object
) -> dict[str, Any]:
    """Return a kernel's arguments: a model, drawn data, settings."""
    draw = np.random.default_rng(5)
    kind = next(iter(read_trained(model).values())).dtype
    return {
        "model": make_shape(model),
        "loss": cross_entropy,
        "reduction": "mean",
        "parameters": read_trained(model),
        "buffers": read_buffers(model),
        "data": {
            "x": draw.normal(size=(samples, WIDTH)).astype(kind),
            "y": draw.integers(0, CLASSES, samples),
        },
        "rows": None,
        "settings": settings,
        "version": 7,
    }


@dataclass(frozen=True)
class Task:
    """One job of a pipeline."""

    cuts: tuple[int, ...]
    kernel: str = "local_steps"
    kind: str = "float64"
    settings: tuple[tuple[str, object], ...] = ()
    options: tuple[tuple[str, object], ...] = ()
    make: Callable[[str], nn.Sequential] = make_model
    samples: int = SAMPLES

    def job(self) -> dict[str, Any]:
        """Return the kernel's arguments."""
        model = self.make(self.kind)
        return make_job(model, self.samples, **STEPS | dict(self.settings))


STEPS = {"steps": 20, "batch": 8, "rate": 0.3, "seed": 11}


def run_delayed(task: Task, *, synchronous: bool = False) -> dict[str, np.ndarray]:
    """Return weights and buffers after the delayed rule, by plain torch, batch by batch.

    Every batch goes through all stages at the versions that the rule says: at stage s with m
    replicas of N members, ``batch // m - (N - 1 - members before s) // m`` updates.
    """
    job, options = task.job(), dict[str, Any](task.options)
    model = task.make(task.kind)
    widths: tuple[int, ...] = tuple(
        options.get("replicas", (1,) * (len(task.cuts) + 1))
    )
    ends = [0, *task.cuts, len(model)]
    parts = [model[a:b] for a, b in itertools.pairwise(ends)]
    settings = job["settings"]
    makers = [
        torch.optim.SGD(
            part.parameters(),
            lr=settings["rate"],
            momentum=settings.get("momentum", 0.0),
            weight_decay=settings.get("decay", 0.0),
        )
        for part in parts
    ]
    copies = [[[p.detach().clone() for p in part.parameters()]] for part in parts]
    waiting: list[list[tuple[int, list[Tensor]]]] = [[] for _ in parts]
    x, y = (torch.from_numpy(job["data"][name]) for name in "xy")
    dealt = kernels.deal(len(x), settings["batch"], settings["seed"])
    for batch in range(settings["steps"]):
        rows = torch.from_numpy(next(dealt))
        newest = [[p.detach().clone() for p in part.parameters()] for part in parts]
        for stage, part in enumerate(parts):
            at = 0 if options.get("vertical") else stage
            lag = (sum(widths) - 1 - sum(widths[:at])) // widths[at]
            version = max(batch // widths[at] - lag, 0) * widths[at] // widths[stage]
            old = copies[stage][-1 if synchronous else version]
            for p, numbers in zip(part.parameters(), old, strict=True):
                p.data = numbers.clone()
        model.zero_grad()
        loss: Any = cross_entropy(model(x[rows]), y[rows])
        loss.backward()
        for stage, part in enumerate(parts):
            own = list(part.parameters())
            waiting[stage].append(
                (len(rows), [g.clone() for p in own if (g := p.grad) is not None])
            )
            for p, numbers in zip(own, newest[stage], strict=True):
                p.data = numbers
            if len(waiting[stage]) < widths[stage] and batch + 1 < settings["steps"]:
                continue
            total = sum(count for count, _ in waiting[stage])
            for index, p in enumerate(own):
                shares = [g[index] * (n / total) for n, g in waiting[stage]]
                p.grad = shares[0]
                for one in shares[1:]:
                    p.grad = p.grad + one
            makers[stage].step()
            copies[stage].append([p.detach().clone() for p in own])
            waiting[stage] = []
    return {name: one.numpy() for name, one in model.state_dict().items()}
