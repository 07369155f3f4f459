"""Linear models: ridge (closed form, conjugate gradients), lasso (two ways), L1-logistic.

Volunteers sum products of columns once or once a round; the small system of as many unknowns
as columns is solved here. Lines are split over the parts. There is no intercept: give a column
of ones. Coordinate descent divides by each column's own curvature: the published rule, which
takes columns of mean square 1 at most for granted, diverges on others.
"""

from __future__ import annotations

import numpy as np

from stoilo.core.errors import UsageError
from stoilo.learn.core.tensors import Array, Tensors
from stoilo.learn.kernels.programs import curve, gram, product, shard
from stoilo.learn.paracel.program import Program

_PASSES, _ENOUGH = 100_000, 1e-14  # coordinate descent: most passes, relative change


def _start(width: int) -> dict[str, Array]:
    return {
        "theta": np.zeros(width),
        "gram": np.zeros((width, width)),
        "moment": np.zeros(width),
        "samples": np.zeros(1),
    }


def ridge(width: int, penalty: float) -> Program:
    """Return the program for ``min |Xθ - y|² + penalty |θ|²`` in one round."""
    _check(penalty)

    def step(_: Tensors, sums: Tensors) -> Tensors:
        matrix = sums["gram"] + penalty * np.eye(width)
        return {"theta": np.linalg.solve(matrix, sums["moment"])}

    return Program(_start(width), gram, step)


def lasso(width: int, penalty: float) -> Program:
    """Return the program for ``min |Xθ - y|² / 2n + penalty |θ|₁`` in one round."""
    _check(penalty)

    def step(here: Tensors, sums: Tensors) -> Tensors:
        count = sums["samples"][0]
        square, moment = sums["gram"] / count, sums["moment"] / count
        return {"theta": descend(square, moment, penalty, here["theta"])}

    return Program(_start(width), gram, step)


def consensus_lasso(width: int, penalty: float, rounds: int = 300) -> Program:
    """Return the lasso by consensus ADMM: no matrix is sent, parts may be rounds apart.

    Each part solves a small ridge system that pulls its solution to the others' and keeps
    it with its dual; what is common is the votes' mean, thresholded (Boyd et al. 2011, §8.2).
    Round 0 finds the pull: the parts' mean curvature.
    """
    _check(penalty)
    start = {name: np.zeros(width) for name in ("theta", "votes")}
    start |= {name: np.zeros(1) for name in ("rho", "parts", "samples")}

    def own(_: int, __: int) -> dict[str, Array]:
        return {"own": np.zeros(width), "dual": np.zeros(width)}

    def step(here: Tensors, sums: Tensors) -> Tensors:
        count, pull = sums["parts"][0], here["rho"][0]
        if not pull:
            return {"rho": sums["rho"] / count}
        mean, least = sums["votes"] / count, penalty * sums["samples"][0] / pull / count
        return {"theta": np.sign(mean) * np.maximum(0.0, np.abs(mean) - least)}

    return Program(start, shard, step, 1 + rounds, own=own, is_lenient=True)


def sparse_logistic(width: int, penalty: float, rounds: int = 100) -> Program:
    """Return the program for ``min Σ log(1 + exp(x·θ)) - y x·θ + penalty |θ|₁``.

    A round minimises a parabola that lies above the loss everywhere (its curvature is a
    quarter of the columns' products at most), so that no round makes it worse.
    """
    _check(penalty)

    def step(here: Tensors, sums: Tensors) -> Tensors:
        theta, square = here["theta"], sums["gram"]
        moment = square @ theta - sums["moment"]
        return {"theta": descend(square, moment, penalty, theta)}

    start = _start(width)
    del start["samples"]
    return Program(start, curve, step, rounds)


def conjugate_ridge(width: int, penalty: float, rounds: int | None = None) -> Program:
    """Return ridge by conjugate gradients: no matrix is made or sent.

    Round 0 finds the first direction; each further one is a step, `width` of them by default.
    """
    _check(penalty)
    zero = np.zeros(width)
    start = dict.fromkeys(("theta", "rest", "direction", "product", "moment"), zero)

    def step(here: Tensors, sums: Tensors) -> Tensors:
        rest, direction = here["rest"], here["direction"]
        if not direction.any():  # at the start, or there is nothing left to gain
            first = np.where(here["begun"] == 0.0, sums["moment"], rest)
            return {"rest": first, "direction": first, "begun": np.ones(1)}
        ahead = sums["product"] + penalty * direction
        length = (rest @ rest) / (direction @ ahead)
        left = rest - length * ahead
        turn = (left @ left) / (rest @ rest)
        theta = here["theta"] + length * direction
        return {"theta": theta, "rest": left, "direction": left + turn * direction}

    steps = width if rounds is None else rounds
    return Program({**start, "begun": np.zeros(1)}, product, step, 1 + steps)


def descend(square: Array, moment: Array, penalty: float, start: Array) -> Array:
    """Return the θ of ``min θᵀSθ/2 - m·θ + penalty |θ|₁``, by coordinates from `start`.

    A column of zeros keeps its start.
    """
    theta, slope = np.array(start), square @ start - moment
    for _ in range(_PASSES):
        largest = 0.0
        for j in np.flatnonzero(square.diagonal() > 0.0):
            own = square[j, j]
            wish = theta[j] - slope[j] / own
            moved = np.sign(wish) * max(0.0, abs(wish) - penalty / own) - theta[j]
            theta[j] += moved
            slope += moved * square[:, j]
            largest = max(largest, abs(moved))
        if largest <= _ENOUGH * max(1.0, float(np.abs(theta).max())):
            break
    return theta


def _check(penalty: float) -> None:
    if not 0.0 <= penalty < np.inf:
        raise UsageError("STO-T040", f"the penalty {penalty} is not a number from 0 on")
