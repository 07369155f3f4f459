"""The digits, a small network of plain arrays, and a stop at an accuracy: for `learn_*`."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from stoilo.learn import ArrayModel, Part, Trainer, split
from tests.support.learning import load_digits

__all__ = ["Reached", "make_model", "make_parts", "score", "train_until"]

WIDTH = 32


def network_loss(
    parameters: Mapping[str, NDArray[Any]], x: NDArray[Any], y: NDArray[Any]
) -> tuple[float, dict[str, NDArray[Any]]]:
    """Return the sum of losses and its gradient: 64 inputs, one tanh layer, softmax."""
    hidden = np.tanh(x @ parameters["w"] + parameters["b"])
    z = hidden @ parameters["v"] + parameters["c"]
    z = z - z.max(axis=1, keepdims=True)
    logs = z - np.log(np.exp(z).sum(axis=1, keepdims=True))
    slope = np.exp(logs)
    slope[np.arange(len(y)), y] -= 1.0
    back = (slope @ parameters["v"].T) * (1.0 - hidden**2)
    loss = -float(logs[np.arange(len(y)), y].sum())
    sums = {"v": hidden.T @ slope, "c": slope.sum(axis=0)}
    return loss, {"w": x.T @ back, "b": back.sum(axis=0), **sums}


def make_model() -> ArrayModel:
    """Return the network with its first weights, the same each time."""
    chooser = np.random.default_rng(0)
    w, v = (
        chooser.normal(size=(64, WIDTH)) / 8.0,
        chooser.normal(size=(WIDTH, 10)) / 6.0,
    )
    start = {"w": w, "b": np.zeros(WIDTH), "v": v, "c": np.zeros(10)}
    return ArrayModel(start, network_loss)


def make_parts(parts: int) -> list[Part]:
    """Return 1,400 digits in so many parts."""
    digits = load_digits()
    return split(digits.images, digits.labels, parts)


def score(parameters: Mapping[str, NDArray[Any]]) -> float:
    """Return the share of the other 397 digits that is classified rightly."""
    digits = load_digits()
    hidden = np.tanh(digits.test_images @ parameters["w"] + parameters["b"])
    z = hidden @ parameters["v"] + parameters["c"]
    return float(np.mean(z.argmax(axis=1) == digits.test_labels))


@dataclass(frozen=True, slots=True)
class Reached:
    """What it took: `seconds` by the wall and by the backend's clock, answers, accuracy."""

    seconds: float
    backend_s: float
    answers: int
    accuracy: float


async def train_until(trainer: Trainer, accuracy: float) -> Reached:
    """Train until the held-out accuracy is reached; fail at the end of the training."""
    clock = trainer.run.backend
    began, virtual = time.perf_counter(), clock.now()
    best = 0.0
    async for update in trainer:
        best = max(best, found := score(update.snapshot.parameters))
        if found >= accuracy:
            answers = len(trainer.run.history.updates)
            took = time.perf_counter() - began
            return Reached(took, clock.now() - virtual, answers, found)
    raise AssertionError(f"{accuracy} was not reached, only {best}")
