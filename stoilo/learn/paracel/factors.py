"""Factors of matrices: the SVD of a tall one; of a sparse one by least squares, CG or SGD."""

from __future__ import annotations

import functools

import numpy as np

from stoilo.core.errors import UsageError
from stoilo.learn.core.tensors import Array, Tensors
from stoilo.learn.kernels.programs import along, normal, rate, stack, triangle
from stoilo.learn.paracel.program import Program
from stoilo.learn.store.functions import Probe, UpdateFunction, register

_PROBE = Probe(
    np.array([[2.0, 1.0], [0.0, 1.0]]),
    np.array([[1.0, 3.0], [0.0, 2.0]]),
    np.array([[3.0, 0.0], [0.0, 1.0]]),
)


@functools.cache
def stacking() -> UpdateFunction:
    """Return the update function of `tall_svd`: a parameter server has to know it."""
    return register("stack", stack, _PROBE)


def tall_svd(columns: int) -> Program:
    """Return the program that finds the R of all lines' QR; see `read_svd`.

    Householder's QR of each part, then of their triangles. The published way, Cholesky of
    ``MᵀM``, squares the condition: it loses half of the digits of small singular values.
    """

    def step(_: Tensors, sums: Tensors) -> Tensors:
        return sums

    room = {"triangle": np.zeros((columns, columns))}
    return Program(room, triangle, step, update=stacking())


def read_svd(found: Tensors) -> tuple[Array, Array]:
    """Return singular values, falling, and the right vectors as rows.

    The left vectors of some lines are ``lines @ vectors.T / values``.
    """
    _, values, vectors = np.linalg.svd(found["triangle"])
    return values, vectors


def alternating(
    users: Array, items: Array, penalty: float, rounds: int = 20
) -> Program:
    """Return alternating least squares from these factors (one row each, equally wide).

    Minimises ``Σ (rating - u·i)² + penalty (|U|² + |I|²)``; samples are (user, item), targets
    ratings. A round solves the users' factors for fixed items, and one more the items'. Who
    has no rating gets zeros. (The published program solves one side, once.)
    """
    if not 0.0 < penalty < np.inf:
        raise UsageError("STO-T040", f"the penalty {penalty} must be positive")
    most, width = max(len(users), len(items)), users.shape[1]
    start = {
        "users": np.array(users, float),
        "items": np.array(items, float),
        "side": np.zeros(1),
        "gram": np.zeros((most, width, width)),
        "moment": np.zeros((most, width)),
    }

    def step(here: Tensors, sums: Tensors) -> Tensors:
        side = "items" if here["side"][0] else "users"
        count = len(here[side])
        square = sums["gram"][:count] + penalty * np.eye(width)
        lower = np.linalg.cholesky(square)
        half = np.linalg.solve(lower, sums["moment"][:count, :, None])
        found = np.linalg.solve(np.swapaxes(lower, 1, 2), half)[..., 0]
        return {side: found, "side": 1.0 - here["side"]}

    return Program(start, normal, step, 2 * rounds)


def conjugate_factors(
    users: Array, items: Array, penalty: float, rounds: int = 100
) -> Program:
    """Return both sides at once by conjugate gradients, with the goal of `alternating`.

    Polak and Ribière's directions, begun anew where they turn back; along a direction the
    goal is a polynomial of degree 4, whose least value is found exactly: none makes it worse.
    A direction takes two rounds: one for the slope, one for the polynomial.
    """
    u, i = np.array(users, float), np.array(items, float)
    start = {"users": u, "items": i, "powers": np.zeros(5), "turn": np.zeros(1)}
    start |= dict.fromkeys(("du", "gu", "hu"), np.zeros_like(u))
    start |= dict.fromkeys(("di", "gi", "hi"), np.zeros_like(i))

    def step(here: Tensors, sums: Tensors) -> Tensors:
        point = _join(here["users"], here["items"])
        ahead = _join(here["du"], here["di"])
        if here["turn"][0]:
            own = [point @ point, 2.0 * (point @ ahead), ahead @ ahead]
            way = _least(sums["powers"] + penalty * np.array([*own, 0.0, 0.0]))
            pairs = zip(("users", "items"), ("du", "di"), strict=True)
            moved = {name: here[name] + way * here[by] for name, by in pairs}
            return {**moved, "turn": np.zeros(1)}
        slopes = {n: sums[n] + 2.0 * penalty * here[o] for n, o in _SIDES}
        slope, last = _join(slopes["gu"], slopes["gi"]), _join(here["hu"], here["hi"])
        size = last @ last
        keep = max(0.0, slope @ (slope - last) / size) if size else 0.0
        if slope @ (keep * ahead - slope) >= 0.0:
            keep = 0.0
        further = {
            d: keep * here[d] - slopes[g] for d, g in (("du", "gu"), ("di", "gi"))
        }
        return {**further, "hu": slopes["gu"], "hi": slopes["gi"], "turn": np.ones(1)}

    return Program(start, along, step, 2 * rounds)


_SIDES = (("gu", "users"), ("gi", "items"))


def _join(one: Array, other: Array) -> Array:
    return np.concatenate([one.ravel(), other.ravel()])


def _least(powers: Array) -> float:
    """Return where a polynomial of degree 4 that grows at both ends is least."""
    slopes = powers[1:] * np.arange(1.0, 5.0)
    roots = np.roots(slopes[::-1])
    spots = [0.0, *roots[np.abs(roots.imag) <= _REAL * np.abs(roots)].real.tolist()]
    return float(min(spots, key=lambda at: float(np.polyval(powers[::-1], at))))


_REAL = 1e-9  # of a root: so small an imaginary part is rounding


def biased_factors(
    users: Array,
    items: Array,
    *,
    rounds: int = 100,
    step: float = 5e-3,
    decay: float = 1e-2,
    bounds: tuple[float, float] = (1.0, 5.0),
) -> Program:
    """Return factors and biases of ratings by SGD; samples are (user, item), targets ratings.

    A rating is taken for ``mean + user's bias + item's bias + u·i``, within `bounds`. Each
    part makes a pass over its ratings in their order; a user or item becomes the mean of what
    it is at the parts that have it. One part alone is serial SGD, bit for bit. Round 0 finds
    the mean and who has whom. See `guess_ratings`.
    """
    start = {
        "users": np.array(users, float),
        "items": np.array(items, float),
        "mean": np.zeros(2),
        "rules": np.array([step, decay, *bounds]),
        "round": np.zeros(1),
    }
    for name, side in (("user", users), ("item", items)):
        start |= {
            f"{name}_bias": np.zeros(len(side)),
            f"{name}_holders": np.zeros(len(side)),
        }

    def put_together(here: Tensors, sums: Tensors) -> Tensors:
        if not here["round"][0]:
            first = {n: sums[n] for n in ("user_holders", "item_holders")}
            mean = np.array([sums["mean"][0] / sums["mean"][1], 0.0])
            return {**first, "mean": mean, "round": np.ones(1)}
        found = {}
        for name in ("users", "items", "user_bias", "item_bias"):
            held = here["user_holders" if name.startswith("user") else "item_holders"]
            # Values, not differences: of one holder the mean is the value, bit for bit.
            share = np.maximum(held, 1.0).reshape(-1, *[1] * (here[name].ndim - 1))
            is_held = np.broadcast_to(held.reshape(share.shape) > 0.0, here[name].shape)
            found[name] = np.where(is_held, sums[name] / share, here[name])
        return {**found, "round": here["round"] + 1.0}

    return Program(start, rate, put_together, 1 + rounds)


def guess_ratings(found: Tensors, links: Array) -> Array:
    """Return what `biased_factors` takes ratings for at (user, item).

    The mean where a number is -1, or had no ratings.
    """
    u, i = links[:, 0], links[:, 1]
    _, _, low, high = found["rules"]
    biases = found["user_bias"][u] + found["item_bias"][i]
    guess = found["mean"][0] + biases + np.sum(found["users"][u] * found["items"][i], 1)
    held = (found["user_holders"][u] > 0) & (found["item_holders"][i] > 0)
    known = held & (u >= 0) & (i >= 0)
    result: Array = np.where(known, np.clip(guess, low, high), found["mean"][0])
    return result
