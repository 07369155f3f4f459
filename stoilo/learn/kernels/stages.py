"""Kernels of one stage of a torch model: level `tensor`, on the processor.

``model`` is a sequence of stages of which the setting ``stage`` names one; its parameters
have the whole model's names. A stage's input is the data or, as ``input``, the answer of the
stage before it; ``own`` brings the loss's slope at its output, where a stage comes after it.
The samples go through in micro-batches of ``batch`` (0: together), and sums are over all.
"""

from __future__ import annotations

import torch

from stoilo.learn.kernels.array_models import count
from stoilo.learn.kernels.torch_models import (
    answer,
    apply,
    choose,
    dense,
    judge,
    restore,
    take,
    trained,
    widen,
)

__all__ = ["backward", "forward"]


def forward(kwargs):
    """Return what the stage makes of its input: ``output``, samples first."""
    with torch.random.fork_rng(devices=[]), torch.no_grad():
        stage = open_stage(kwargs)
        x, _ = find_samples(kwargs)
        found = [apply(stage, take(x, rows)) for rows in cut(kwargs, x)]
    output = {"output": torch.cat(found)}
    return answer(kwargs, stage, count(x), 0.0, -1, output)


def backward(kwargs):
    """Return the sum of the samples' gradients, computing the stage forward once more.

    With them, of a stage that has one before it, as ``input``: the slope at its input.
    """
    place, inner = kwargs["settings"]["stage"], "input" in kwargs
    slopes, losses, right = [], 0.0, -1 if "own" in kwargs else 0
    with torch.random.fork_rng(devices=[]):
        stage = open_stage(kwargs)
        x, y = find_samples(kwargs)
        for rows in cut(kwargs, x):
            given = take(x, rows)
            if inner:
                given = given.requires_grad_()
            output = apply(stage, given)
            if "own" in kwargs:
                output.backward(take(kwargs["own"]["output"], rows))
            else:
                loss, correct = judge(kwargs, output, take(y, rows), len(rows))
                loss = len(rows) * loss
                loss.backward()
                losses, right = losses + loss.item(), right + correct
            if inner:
                slopes.append(given.grad)
    sums = {
        f"{place}.{name}": torch.zeros_like(p) if p.grad is None else dense(p.grad)
        for name, p in trained(stage)
    }
    sums = {name: widen(total) for name, total in sums.items()}
    if inner:
        sums["input"] = torch.cat(slopes)
    return answer(kwargs, stage, count(x), losses, right, sums)


def open_stage(kwargs):
    """Return the stage with its parameters, seeded: both passes draw the same masks."""
    place = kwargs["settings"]["stage"]
    start = len(f"{place}.")
    named = {name[start:]: array for name, array in kwargs["parameters"].items()}
    one = {**kwargs, "model": kwargs["model"][place], "parameters": named}
    return restore(one).train()


def find_samples(kwargs):
    """Return the stage's input and the targets, of which only the last stage has some."""
    x, y = choose(kwargs)
    if "input" in kwargs:
        x = torch.as_tensor(kwargs["input"]["tensors"]["output"])
    return x, y


def cut(kwargs, x):
    """Return the rows of each micro-batch."""
    samples = count(x)
    return torch.arange(samples).split(kwargs["settings"]["batch"] or samples)
