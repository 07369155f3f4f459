"""Kernels for models of plain arrays: level `numeric`, no torch anywhere.

``function(parameters, x, y)`` is the researcher's: it returns the sum of the samples' losses
and the gradient of that sum, name → array.
"""

from __future__ import annotations

import numpy as np

from stoilo.learn.kernels.batches import deal
from stoilo.learn.kernels.packing import pack

__all__ = ["evaluate", "gradient", "local_steps"]


def gradient(kwargs):
    """Return the sum of the samples' gradients at the given parameters."""
    x, y = choose(kwargs)
    loss_sum, sums = kwargs["function"](kwargs["parameters"], x, y)
    return answer(kwargs, len(x), loss_sum, sums)


def evaluate(kwargs):
    """Return the sum of the samples' losses; no arrays travel back."""
    x, y = choose(kwargs)
    loss_sum, _ = kwargs["function"](kwargs["parameters"], x, y)
    return answer(kwargs, len(x), loss_sum, {})


def local_steps(kwargs):
    """Return the parameters after some local steps, or the sum of those steps' gradients.

    Settings: ``steps``, ``batch`` (0: all samples), ``rate``, ``momentum``, ``optimizer``
    (``sgd`` or ``adamw``), ``decay``, ``seed``, ``give`` (``parameters`` or ``sum``).
    """
    settings = kwargs["settings"]
    x, y = choose(kwargs)
    weights = {name: np.array(w) for name, w in kwargs["parameters"].items()}
    sums = {name: np.zeros_like(w) for name, w in weights.items()}
    memory = {}
    used, loss_sum = 0, 0.0
    batches = deal(len(x), settings["batch"] or len(x), settings["seed"])
    for step in range(settings["steps"]):
        rows = next(batches)
        loss, found = kwargs["function"](weights, x[rows], y[rows])
        used, loss_sum = used + len(rows), loss_sum + float(loss)
        mean = {name: found[name] / len(rows) for name in weights}
        for name in weights:
            sums[name] = sums[name] + mean[name]
        weights = move(weights, mean, memory, settings, step + 1)
    give = sums if settings.get("give") == "sum" else weights
    return answer(kwargs, used, loss_sum, give)


def move(weights, mean, memory, settings, step):
    """Return the weights after one step of the named optimiser."""
    is_adamw = settings.get("optimizer", "sgd") == "adamw"
    rate, decay = settings["rate"], settings.get("decay", 0.01 if is_adamw else 0.0)
    moved = {}
    for name, w in weights.items():
        g = mean[name]
        if is_adamw:
            first, second = memory.get(name, (np.zeros_like(w), np.zeros_like(w)))
            first = 0.9 * first + 0.1 * g
            second = 0.999 * second + 0.001 * g * g
            memory[name] = (first, second)
            size = np.sqrt(second / (1.0 - 0.999**step)) + 1e-8
            g = first / (1.0 - 0.9**step) / size + decay * w
        else:
            g = g + decay * w
            g = settings.get("momentum", 0.0) * memory.get(name, 0.0) + g
            memory[name] = g
        moved[name] = (w - rate * g).astype(w.dtype)
    return moved


def choose(kwargs):
    """Return the ordered samples of the part."""
    x, y, rows = kwargs["data"]["x"], kwargs["data"]["y"], kwargs["rows"]
    if rows is None:
        return x, y
    return x[np.array(rows)], y[np.array(rows)]


def answer(kwargs, samples, loss_sum, tensors):
    """Return what every kernel returns."""
    kept = kwargs["parameters"]
    given = {name: np.asarray(tensors[name], kept[name].dtype) for name in tensors}
    return {
        "version": kwargs["version"],
        "samples": samples,
        "loss_sum": float(loss_sum),
        "tensors": pack(kwargs, given),
        "buffers": {},
        "correct": -1,
        "numbers": {},
    }
