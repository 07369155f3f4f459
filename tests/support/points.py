"""A small problem for trainers: points around three centres, softmax regression."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from stoilo.learn.core.models import ArrayModel
from stoilo.learn.core.tensors import Array, Tensors

__all__ = ["WISHES", "make_model", "make_samples", "softmax_loss"]


def softmax_loss(
    parameters: Tensors, x: Array, y: Array
) -> tuple[float, dict[str, Array]]:
    """Return the sum of the losses and its gradient."""
    z = x @ parameters["w"] + parameters["b"]
    z = z - z.max(axis=1, keepdims=True)
    logs = z - np.log(np.exp(z).sum(axis=1, keepdims=True))
    slope = np.exp(logs)
    slope[np.arange(len(y)), y] -= 1.0
    loss = -float(logs[np.arange(len(y)), y].sum())
    return loss, {"w": x.T @ slope, "b": slope.sum(axis=0)}


def make_samples(size: int = 120, seed: int = 1) -> tuple[Array, Array]:
    """Return points (size, 4) around three centres, and whose they are."""
    rng = np.random.default_rng(seed)
    y = rng.integers(0, 3, size)
    return rng.normal(size=(size, 4)) + np.eye(3, 4)[y] * 3.0, y


def make_model() -> ArrayModel:
    """Return the regression at zero."""
    return ArrayModel({"w": np.zeros((4, 3)), "b": np.zeros(3)}, softmax_loss)


WISHES: Mapping[str, Mapping[str, Any]] = {
    "dpbgd": {"rate": 0.3},
    "vcasgd": {"alpha": 0.5},
    "downpour": {"rate": 0.05},
    "sandblaster": {"epochs": 8, "penalty": 1e-3},
    "sync": {"batch": 5, "rate": 0.02, "epochs": 6},
    "fedavg": {},
    "diloco": {"rate": 0.1},
    "ssp": {"rate": 0.3, "staleness": 3},
    "logistic": {"rate": 0.01},
}
"""For each method of `stoilo.learn.fit`, settings by which it learns this problem."""
