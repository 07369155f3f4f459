"""Kernels of `stoilo.learn.paracel`: what one part of the data adds to a round's sums.

Each is the ``function(parameters, x, y)`` of an array model: it returns a loss and, in place
of a gradient, arrays with names and shapes of parameters, to be put together over the parts.
Topics are drawn by sums, products, quotients and comparisons of numbers alone: a last bit that
differs from processor to processor would make other labels.
"""

from __future__ import annotations

import numpy as np

__all__ = [
    "along",
    "best",
    "cross",
    "curve",
    "flow",
    "gram",
    "merge_best",
    "nearest",
    "normal",
    "product",
    "rate",
    "shard",
    "stack",
    "topics",
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


def shard(parameters, x, y):
    """Return a part's vote of ADMM, and what it keeps: its own solution and its dual.

    Before a penalty is set, the mean curvature of its columns alone.
    """
    own, dual, penalty = parameters["own"], parameters["dual"], parameters["rho"][0]
    square = x.T @ x
    curvature = np.trace(square) / x.shape[1]
    if penalty > 0.0:
        dual = dual + own - parameters["theta"]
        near = x.T @ y + penalty * (parameters["theta"] - dual)
        own = np.linalg.solve(square + penalty * np.eye(x.shape[1]), near)
    rest = x @ parameters["theta"] - y
    sums = {"votes": own + dual, "rho": np.array([curvature]), "own": own, "dual": dual}
    counts = {"parts": np.ones(1), "samples": np.array([1.0 * len(x)])}
    return 0.5 * float(rest @ rest), {**sums, **counts}


def rate(parameters, x, y):
    """Return factors after one pass of SGD over ratings y at x (user, item), in their order.

    Of users and items that the part has, else zeros; who has each; sum and number of the
    ratings. In round 0 (no mean yet) factors are not moved.
    """
    names = ("users", "items", "user_bias", "item_bias")
    users, items, user_bias, item_bias = [np.array(parameters[n]) for n in names]
    step, decay, low, high = parameters["rules"]
    mean, loss = parameters["mean"][0], 0.0
    for (u, i), rating in zip(x, y, strict=True) if parameters["round"][0] else ():
        guess = mean + user_bias[u] + item_bias[i] + np.sum(users[u] * items[i])
        e = rating - min(max(guess, low), high)
        loss += e * e
        before = np.array(users[u])  # both move by the other's old value
        users[u] += step * (2.0 * e * items[i] - decay * users[u])
        items[i] += step * (2.0 * e * before - decay * items[i])
        user_bias[u] += step * (2.0 * e - decay * user_bias[u])
        item_bias[i] += step * (2.0 * e - decay * item_bias[i])
    of_user = 1.0 * (np.bincount(x[:, 0], minlength=len(users)) > 0)
    of_item = 1.0 * (np.bincount(x[:, 1], minlength=len(items)) > 0)
    sums = {"users": users * of_user[:, None], "items": items * of_item[:, None]}
    sums |= {"user_bias": user_bias * of_user, "item_bias": item_bias * of_item}
    sums |= {"user_holders": of_user, "item_holders": of_item}
    return float(loss), {**sums, "mean": np.array([np.sum(y), 1.0 * len(y)])}


def along(parameters, x, y):
    """Return the gradient of ``Σ (u·i - y)²`` and that sum as a polynomial along a direction.

    Coefficients of the 0th to 4th power of the way.
    """
    users, items = parameters["users"][x[:, 0]], parameters["items"][x[:, 1]]
    ahead, beside = parameters["du"][x[:, 0]], parameters["di"][x[:, 1]]
    a = np.sum(users * items, axis=1) - y
    b = np.sum(ahead * items + users * beside, axis=1)
    c = np.sum(ahead * beside, axis=1)
    powers = [a @ a, 2.0 * (a @ b), b @ b + 2.0 * (a @ c), 2.0 * (b @ c), c @ c]
    by_user, by_item = parameters["users"], parameters["items"]
    slope = {"gu": np.zeros_like(by_user), "gi": np.zeros_like(by_item)}
    for k in range(by_user.shape[1]):
        to_user, to_item = 2.0 * a * items[:, k], 2.0 * a * users[:, k]
        slope["gu"][:, k] = np.bincount(x[:, 0], to_user, minlength=len(by_user))
        slope["gi"][:, k] = np.bincount(x[:, 1], to_item, minlength=len(by_item))
    return float(powers[0]), {**slope, "powers": np.array(powers)}


def topics(parameters, x, y):  # noqa: ARG001 - every kernel takes targets
    """Return counts after a sweep of collapsed Gibbs, and the words' labels (from 1; 0: none).

    Lines of x are documents of numbers of words, filled up with -1. The sweep sees the other
    parts' counts as they were and its own as they change; the first one deals topics out.
    """
    counts, labels = np.array(parameters["counts"]), np.array(parameters["labels"])
    alpha, beta, seed = parameters["priors"]
    sizes, number = np.sum(counts, axis=0), counts.shape[1]
    sweep, part = parameters["sweep"][0], parameters["part"][0]
    words = counts.shape[0]
    draws = np.random.Generator(np.random.PCG64([int(seed), int(sweep), int(part)]))
    found, loss = np.zeros_like(counts), 0.0
    for d in range(len(x)):
        spots = np.flatnonzero(x[d] >= 0)
        mine = np.bincount(labels[d, spots].astype(int), minlength=number + 1)[1:] * 1.0
        chances = draws.random(len(spots))
        for place, chance in zip(spots, chances, strict=True):
            word, old = x[d, place], int(labels[d, place]) - 1
            if old < 0:
                new = int(chance * number)
            else:
                mine[old] -= 1.0
                counts[word, old] -= 1.0
                sizes[old] -= 1.0
                odds = (mine + alpha) * (counts[word] + beta) / (sizes + words * beta)
                steps = np.cumsum(odds)
                new = min(int(np.sum(steps <= chance * steps[-1])), number - 1)
            mine[new] += 1.0
            counts[word, new] += 1.0
            sizes[new] += 1.0
            labels[d, place] = new + 1.0
            found[word, new] += 1.0
        share = (mine + alpha) / (np.sum(mine) + number * alpha)
        fits = (counts[x[d, spots]] + beta) / (sizes + words * beta)
        loss -= float(np.sum(np.log(fits @ share)))
    return loss, {"counts": found, "labels": labels, "part": parameters["part"]}


def cross(parameters, x, y):
    """Return ``XᵀX`` of lines (row, column) with values y; a row's lines are in one part."""
    rows, row = np.unique(x[:, 0], return_inverse=True)
    width = len(parameters["products"])
    found = np.bincount(row * width + x[:, 1], y, minlength=len(rows) * width)
    matrix = found.reshape(len(rows), width)
    return 0.0, {"products": matrix.T @ matrix}


def best(parameters, x, y):
    """Return the lines whose product with the query is largest: (product, number y + 1)."""
    found = np.stack((x @ parameters["query"], y + 1.0), axis=1)
    return 0.0, {"best": merge_best(np.zeros_like(parameters["best"]), found)}


def merge_best(value, change):
    """Return the best of both, as many as in `value`, the largest first; 0 is no line."""
    both = np.vstack((value, change))
    order = np.lexsort((both[:, 1], -both[:, 0], both[:, 1] == 0.0))
    return both[order[: len(value)]]
