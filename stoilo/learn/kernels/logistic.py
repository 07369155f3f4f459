"""The loss of a logistic regression, as the kernels for arrays call it."""

from __future__ import annotations

import numpy as np

__all__ = ["make_loss"]


def make_loss(decay=0.01):
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
