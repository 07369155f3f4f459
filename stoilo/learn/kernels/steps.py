"""Mini-batches and line searches, the same for arrays and for torch."""

from __future__ import annotations

import numpy as np

__all__ = ["deal", "follow"]


def deal(count, size, seed):
    """Yield index arrays of mini-batches: a permutation dealt in order, then a new one."""
    shuffler = np.random.Generator(np.random.PCG64(seed))
    while True:
        order = shuffler.permutation(count)
        for start in range(0, count, size):
            yield order[start : start + size]


def follow(kwargs, gradient):
    """Return losses and slopes as numbers ``loss0 slope0 loss1 …``; no arrays travel back.

    ``parameters`` hold the start and the direction, stacked: each array has them as its
    first and second entry. ``settings["ray"]`` are the steps, `gradient` the kernel.
    """
    here = {name: both[0] for name, both in kwargs["parameters"].items()}
    way = {name: both[1] for name, both in kwargs["parameters"].items()}
    asked = kwargs["settings"]
    settings = {name: asked[name] for name in asked if name != "transport"}
    numbers = {}
    for number, step in enumerate(asked["ray"]):
        there = {
            name: here[name] + (step * way[name]).astype(here[name].dtype)
            for name in here
        }
        found = gradient({**kwargs, "parameters": there, "settings": settings})
        slope = 0.0
        for name, sums in found["tensors"].items():
            slope += float(np.sum(way[name].astype(np.float64) * sums))
        numbers[f"loss{number}"] = found["loss_sum"]
        numbers[f"slope{number}"] = slope
    return {**found, "tensors": {}, "numbers": numbers}
