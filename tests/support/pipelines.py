"""Models, jobs and links of pipelines, and the delayed rule computed in one process."""
"""A small model in stages, and the delayed rule of pipelines in one process, by torch alone."""

from __future__ import annotations

import itertools
import os
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from collections.abc import Mapping, Sequence
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
from torch import nn

__all__ = ["follow_rule", "make_stages", "make_task"]

Samples = tuple[np.ndarray[Any, Any], np.ndarray[Any, Any]]
Weights = Mapping[str, torch.Tensor]


def make_stages(seed: int = 0, stages: int = 3, width: int = 8) -> list[nn.Module]:
    """Return `stages` stages from 4 numbers to 3 classes; hidden ones have tanh."""
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        widths = [4, *[width] * (stages - 1), 3]
        layers = [nn.Linear(a, b) for a, b in itertools.pairwise(widths)]
    return [*(nn.Sequential(one, nn.Tanh()) for one in layers[:-1]), layers[-1]]


def make_task(seed: int = 0, samples: int = 90) -> Samples:
    """Return samples of three classes: 4 float32 numbers each."""
    rng = np.random.default_rng(seed)
    y = rng.integers(0, 3, samples)
    x = rng.normal(size=(samples, 4)) + 3.0 * np.eye(3, 4)[y]
    return x.astype(np.float32), y


def follow_rule(
    stages: Sequence[nn.Module],
    task: Samples,
    groups: Sequence[Sequence[int]],
    rate: float,
    depth: int,
    *,
    batch: int = 5,
    stashed: bool = True,
) -> dict[str, np.ndarray[Any, Any]]:
    """Return the weights of ``w_s ← w_s - η·∇f_b(w_0^(b-K+1), …)``, one group after another.

    Without `stashed` the gradient is taken at the newest weights, while the loss's slope
    at each stage's output still comes of the old ones' forward pass.
    """
    x, y = (torch.from_numpy(one) for one in task)
    kept: list[list[Weights]] = [[dict(one.named_parameters())] for one in stages]
    for b, rows in enumerate(groups):
        old = [max(0, b - max(0, depth - 1 - s)) for s in range(len(stages))]
        met = [_fresh(versions[at]) for versions, at in zip(kept, old, strict=True)]
        for few in _cut(torch.tensor(rows), batch):
            _add_gradients(stages, met, kept if not stashed else None, x[few], y[few])
        for versions, used in zip(kept, met, strict=True):
            steps = {n: rate * (_grad(p).double() / len(rows)) for n, p in used.items()}
            moved = {
                n: (p.detach() - steps[n]).to(p.dtype) for n, p in versions[-1].items()
            }
            versions.append(moved)
    ends = enumerate(versions[-1] for versions in kept)
    return {f"{s}.{n}": p.detach().numpy() for s, end in ends for n, p in end.items()}


def _cut(rows: torch.Tensor, batch: int) -> list[torch.Tensor]:
    return [rows[i : i + batch] for i in range(0, len(rows), batch)]


def _grad(p: torch.Tensor) -> torch.Tensor:
    assert p.grad is not None
    return p.grad


def _fresh(weights: Weights) -> dict[str, torch.Tensor]:
    return {n: p.detach().clone().requires_grad_() for n, p in weights.items()}


def _add_gradients(
    stages: Sequence[nn.Module],
    met: Sequence[Weights],
    newest: Sequence[Sequence[Weights]] | None,
    x: torch.Tensor,
    y: torch.Tensor,
) -> None:
    """Add the sums of some samples' gradients to what the group met."""
    inputs = [x]
    for stage, weights in zip(stages[:-1], met, strict=False):
        with torch.no_grad():
            inputs.append(
                torch.func.functional_call(stage, dict(weights), (inputs[-1],))
            )
    slope = None
    for s in reversed(range(len(stages))):
        weights = met[s] if newest is None else _fresh(newest[s][-1])
        given = inputs[s].clone().requires_grad_(s > 0)
        output = torch.func.functional_call(stages[s], dict(weights), (given,))
        if slope is None:
            output = len(y) * nn.functional.cross_entropy(output, y)
        torch.autograd.backward([output], [slope])
        slope = given.grad
        for name, p in met[s].items():
            if newest is not None:
                more = _grad(weights[name])
                p.grad = more if p.grad is None else p.grad + more
