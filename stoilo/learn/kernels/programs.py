"""Kernels of `stoilo.learn.paracel`: what one part of the data adds to a round's sums.

Each is the ``function(parameters, x, y)`` of an array model: it returns a loss and, in place
of a gradient, arrays with names and shapes of parameters, to be put together over the parts.
"""

from __future__ import annotations

import numpy as np

__all__ = [
    "curve",
    "flow",
    "gram",
    "nearest",
    "normal",
    "product",
    "stack",
    "triangle",
    "words",
]


def fill(kernel):
    """Return a kernel with zeros for the parameters to which it adds nothing."""

    def function(parameters, x, y):
        loss, sums = kernel(parameters, x, y)
        rest = {n: np.zeros_like(a) for n, a in parameters.items() if n not in sums}
        return loss, {**sums, **rest}

    return function


def gram(parameters, x, y):
    """Return ``XᵀX``, ``Xᵀy`` and the number of samples; half the squares as the loss."""
    rest = x @ parameters["theta"] - y
    sums = {"gram": x.T @ x, "moment": x.T @ y, "samples": np.array([1.0 * len(x)])}
    return 0.5 * float(rest @ rest), sums


def curve(parameters, x, y):
    """Return a logistic loss (y of 0 or 1), its gradient and a bound on its curvature."""
    z = x @ parameters["theta"]
    odds = 0.5 * (1.0 + np.tanh(0.5 * z))
    loss = float(np.sum(np.logaddexp(0.0, z) - y * z))
    return loss, {"gram": 0.25 * (x.T @ x), "moment": x.T @ (odds - y)}


def product(parameters, x, y):
    """Return ``Xᵀ X d`` of the direction and ``Xᵀy``; half the squares as the loss."""
    rest = x @ parameters["theta"] - y
    ahead = x.T @ (x @ parameters["direction"])
    return 0.5 * float(rest @ rest), {"product": ahead, "moment": x.T @ y}


def nearest(parameters, x, y):  # noqa: ARG001 - every kernel takes targets
    """Return sum and number of the samples next to each centre; the squares as the loss."""
    centres = parameters["centres"]
    far = np.sum(centres * centres, axis=1) - 2.0 * (x @ centres.T)
    is_mine = np.argmin(far, axis=1)[:, None] == np.arange(len(centres))
    loss = float(np.sum(np.min(far, axis=1)) + np.sum(x * x))
    return loss, {"centres": is_mine.T @ x, "counts": 1.0 * np.sum(is_mine, axis=0)}


def flow(parameters, x, y):
    """Return what links (from, to; of weight y) carry to each page, and leave each with."""
    rank, out = parameters["rank"], parameters["out"]
    source, target = x[:, 0], x[:, 1]
    share = rank[source] * y / np.where(out > 0.0, out, 1.0)[source]
    sums = {
        "rank": np.bincount(target, share, minlength=len(rank)),
        "out": np.bincount(source, y, minlength=len(rank)),
    }
    return 0.0, sums


def triangle(parameters, x, y):  # noqa: ARG001 - every kernel takes targets
    """Return the triangle R of the part's Householder QR, zeros below it."""
    found = np.zeros_like(parameters["triangle"])
    upper = np.linalg.qr(x, mode="r")
    found[: len(upper)] = upper
    return 0.0, {"triangle": found}


def stack(value, change):
    """Return the R of two triangles above each other, its diagonal not negative."""
    found = np.linalg.qr(np.vstack((value, change)), mode="r")
    return np.where(np.diagonal(found) < 0.0, -1.0, 1.0)[:, None] * found


def words(parameters, x, y):  # noqa: ARG001 - every kernel takes targets
    """Return how often each number of a word stands in the lines; negative: no word."""
    found = x[x >= 0]
    return 0.0, {
        "counts": 1.0 * np.bincount(found, minlength=len(parameters["counts"]))
    }


def normal(parameters, x, y):
    """Return the normal equations of one side's factors, from ratings y at x (user, item)."""
    users, items = parameters["users"], parameters["items"]
    rest = np.sum(users[x[:, 0]] * items[x[:, 1]], axis=1) - y
    by_user = parameters["side"][0] == 0.0
    index = x[:, 0] if by_user else x[:, 1]
    other = items[x[:, 1]] if by_user else users[x[:, 0]]
    left = np.zeros_like(parameters["gram"])
    right = np.zeros_like(parameters["moment"])
    for a in range(users.shape[1]):
        right[:, a] = np.bincount(index, other[:, a] * y, minlength=len(right))
        for b in range(users.shape[1]):
            both = other[:, a] * other[:, b]
            left[:, a, b] = np.bincount(index, both, minlength=len(left))
    return float(rest @ rest), {"gram": left, "moment": right}
