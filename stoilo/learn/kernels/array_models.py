"""Kernels for models of plain arrays: level `numeric`, no torch anywhere.

``function(parameters, x, y)`` is the researcher's: it returns the sum of the samples' losses
and the gradient of that sum, name → array.
"""

from __future__ import annotations

import numpy as np

from stoilo.learn.kernels.encoding import arrive, pack

__all__ = ["evaluate", "gradient", "local_steps"]  # the kernels of a model


def gradient(kwargs):
    """Return the sum of the samples' gradients at the given parameters."""
    kwargs = arrive(kwargs)
    x, y = choose(kwargs)
    if "own" in kwargs:  # arrays that travel with the part
        own = {**kwargs["parameters"], **kwargs["own"]}
        kwargs = {**kwargs, "parameters": own}
    loss_sum, sums = kwargs["function"](kwargs["parameters"], x, y)
    return answer(kwargs, count(x), loss_sum, sums)


def evaluate(kwargs):
    """Return the sum of the samples' losses and, by ``predict``, how many were right.

    With the setting ``labels``, an array comes with it: the class that each sample was
    taken for. Otherwise no arrays do.
    """
    kwargs = arrive(kwargs)
    x, y = choose(kwargs)
    loss_sum, _ = kwargs["function"](kwargs["parameters"], x, y)
    found = answer(kwargs, count(x), loss_sum, {})
    if kwargs.get("predict") is not None:
        labels = np.asarray(kwargs["predict"](kwargs["parameters"], x), np.int64)
        found["correct"] = int((labels == y).sum())
        if kwargs["settings"].get("labels"):
            found["tensors"] = {"labels": labels}
    return found


def local_steps(kwargs):
    """Return the parameters after some local steps, or the sum of those steps' gradients.

    Settings: ``steps``, ``batch`` (0: all samples), ``rate``, ``momentum``, ``optimizer``
    (``sgd`` or ``adamw``), ``decay``, ``seed``, ``give`` (``parameters`` or ``sum``: of the
    loss alone), ``proximal`` (pull back to the start).
    """
    kwargs = arrive(kwargs)
    settings = kwargs["settings"]
    start, pull = kwargs["parameters"], settings.get("proximal", 0.0)
    x, y = choose(kwargs)
    weights, memory = {n: np.array(w) for n, w in kwargs["parameters"].items()}, {}
    sums = {name: np.zeros_like(w) for name, w in weights.items()}
    used, loss_sum = 0, 0.0
    samples = count(x)
    batches = deal(samples, settings["batch"] or samples, settings["seed"])
    for step in range(settings["steps"]):
        rows = next(batches)
        loss, found = kwargs["function"](weights, take(x, rows), take(y, rows))
        used, loss_sum = used + len(rows), loss_sum + float(loss)
        mean = {name: found[name] / len(rows) for name in weights}
        for name in weights:
            sums[name] = sums[name] + mean[name]
        if pull:
            mean = {n: mean[n] + pull * (w - start[n]) for n, w in weights.items()}
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


def deal(count, size, seed):
    """Yield index arrays of mini-batches: a permutation dealt in order, then a new one."""
    shuffler = np.random.Generator(np.random.PCG64(seed))
    while True:
        order = shuffler.permutation(count)
        for start in range(0, count, size):
            yield order[start : start + size]


def choose(kwargs):
    """Return the ordered samples of the part."""
    x, y, rows = kwargs["data"]["x"], kwargs["data"]["y"], kwargs["rows"]
    if rows is None:
        return x, y
    return take(x, np.array(rows)), take(y, np.array(rows))


def take(samples, rows):
    """Return the samples of these rows; of each array, where it is a tuple."""
    if isinstance(samples, tuple):
        return tuple([one[rows] for one in samples])
    return samples[rows]


def count(samples):
    """Return how many samples there are."""
    return len(samples[0]) if isinstance(samples, tuple) else len(samples)


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
    }


def make_logistic_loss(decay=0.01):
    """Return ``(parameters, x, y) -> (sum of losses, gradient of that sum)``.

    A sample's loss is ``log(1 + exp(x·θ)) - y x·θ + decay |θ|²`` with y of 0 or 1; the
    parameters are one array ``theta``.
    """

    def loss(parameters, x, y):
        theta = parameters["theta"]
        z = x @ theta
        total = np.sum(np.logaddexp(0.0, z) - y * z) + len(x) * decay * (theta @ theta)
        odds = 0.5 * (1.0 + np.tanh(0.5 * z))  # 1 / (1 + exp(-z)) without overflow
        gradient = x.T @ (odds - y) + 2.0 * decay * len(x) * theta
        return float(total), {"theta": gradient}

    return loss


def give(kwargs):
    """Return the arguments themselves: for cells, whose members have kernels of their own."""
    return kwargs
