"""A small model in stages, and the delayed rule of pipelines in one process, by torch alone."""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import torch
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
