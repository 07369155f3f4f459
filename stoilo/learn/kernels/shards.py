"""Kernels of one shard of a layer that is too wide for one volunteer: level `numeric`.

Each gets the samples whole and the shard's own weights; sums over shards are made by whoever
ordered them, in the shards' order. All answers are in doubles.
"""

from __future__ import annotations

import numpy as np

__all__ = ["partial", "slopes", "statistics"]


def partial(kwargs):
    """Return what the shard adds to the layer's output: ``function(parameters, x)``."""
    found = kwargs["function"](kwargs["parameters"], kwargs["data"]["x"])
    return answer(kwargs, {"output": found})


def statistics(kwargs):
    """Return of each token the largest logit here, the sum of ``exp(z - max)``, the target's.

    The target's is 0 where it is another shard's. With smoothing, the sum of all logits, too.
    """
    z, rows, places = score(kwargs)
    top = z.max(axis=1)
    target = np.zeros(len(z))
    target[rows] = z[rows, places]
    found = {"max": top, "sum": np.exp(z - top[:, None]).sum(axis=1), "target": target}
    if kwargs["settings"]["smoothing"]:
        found["total"] = z.sum(axis=1)
    return answer(kwargs, found)


def slopes(kwargs):
    """Return what the shard adds to the loss's slope at the input.

    ``own`` brings the logarithm of each token's sum over the whole vocabulary, and its weight.
    """
    settings, given = (
        kwargs["settings"],
        {**kwargs["parameters"], **kwargs.get("own", {})},
    )
    z, rows, places = score(kwargs)
    smoothing = settings["smoothing"]
    slope = np.exp(z - given["log"][:, None]) - smoothing / settings["vocabulary"]
    slope[rows, places] -= 1.0 - smoothing
    slope *= given["share"][:, None]
    return answer(kwargs, {"input": slope @ given["weight"]})


def score(kwargs):
    """Return the logits (tokens, shard), and which tokens have which of them as target."""
    parameters, settings = kwargs["parameters"], kwargs["settings"]
    x, y = kwargs["data"]["x"], kwargs["data"]["y"]
    z = (x @ parameters["weight"].T).astype(np.float64) + parameters["bias"]
    places = y - settings["start"]
    here = (places >= 0) & (places < z.shape[1]) & (y != settings["ignored"])
    rows = np.flatnonzero(here)
    return z, rows, places[rows]


def answer(kwargs, tensors):
    """Return what every kernel returns."""
    return {
        "version": kwargs["version"],
        "samples": len(kwargs["data"]["x"]),
        "loss_sum": 0.0,
        "tensors": {name: np.asarray(a, np.float64) for name, a in tensors.items()},
        "buffers": {},
        "correct": -1,
    }
