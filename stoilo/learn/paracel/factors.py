"""Factors of matrices: the SVD of a tall one, and alternating least squares of a sparse one."""

from __future__ import annotations

import functools

import numpy as np

from stoilo.core.errors import UsageError
from stoilo.learn.core.tensors import Array, Tensors
from stoilo.learn.kernels.programs import normal, stack, triangle
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
