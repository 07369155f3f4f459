"""Handwritten digits, which come with scikit-learn, and a small network of plain arrays.

The network travels to volunteers as source, like any function of yours: level `numeric`,
no torch.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from sklearn.datasets import load_digits

from stoilo import learn


@dataclass(frozen=True)
class Digits:
    """1,797 images of 8 × 8 grey values, 0 to 1, and which digit each shows.

    Attributes:
        train: images (1400, 64) and labels (1400,).
        held_out: 397 others that nobody trains with.
    """

    train: tuple[Any, Any]
    held_out: tuple[Any, Any]


def load(seed: int = 0) -> Digits:
    """Return the digits in an order that `seed` chooses."""
    images, labels = load_digits(return_X_y=True)
    order = np.random.default_rng(seed).permutation(len(labels))
    images, labels = images[order] / 16.0, labels[order]
    return Digits((images[:1400], labels[:1400]), (images[1400:], labels[1400:]))


def first_weights(hidden: int = 32, seed: int = 0) -> dict[str, Any]:
    """Return the weights of a net 64 - hidden - 10 before any training."""
    rng = np.random.default_rng(seed)
    return {
        "w1": rng.normal(0.0, 0.125, (64, hidden)),
        "b1": np.zeros(hidden),
        "w2": rng.normal(0.0, hidden**-0.5, (hidden, 10)),
        "b2": np.zeros(10),
    }


def loss(w, x, y):
    """Return the sum of the cross-entropies of some images, and its gradient."""
    middle = np.tanh(x @ w["w1"] + w["b1"])
    scores = middle @ w["w2"] + w["b2"]
    scores = scores - scores.max(axis=1, keepdims=True)
    logs = scores - np.log(np.exp(scores).sum(axis=1, keepdims=True))
    rows = np.arange(len(y))
    slope = np.exp(logs)
    slope[rows, y] -= 1.0
    back = (slope @ w["w2"].T) * (1.0 - middle**2)
    return -float(logs[rows, y].sum()), {
        "w1": x.T @ back,
        "b1": back.sum(axis=0),
        "w2": middle.T @ slope,
        "b2": slope.sum(axis=0),
    }


def accuracy(w, x, y) -> float:
    """Return the share of images that these weights classify rightly."""
    middle = np.tanh(x @ w["w1"] + w["b1"])
    return float(((middle @ w["w2"] + w["b2"]).argmax(axis=1) == y).mean())


def network(hidden: int = 32, seed: int = 0) -> learn.ArrayModel:
    """Return the net as trainers take it."""
    return learn.ArrayModel(first_weights(hidden, seed), loss)
