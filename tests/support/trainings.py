"""A small training whose end is the same, number for number, however often it is killed."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from stoilo.learn.backends import Backend
from stoilo.learn.backends.local import LocalBackend
from stoilo.learn.core.data import split
from stoilo.learn.core.models import ArrayModel
from stoilo.learn.core.tensors import Tensors
from stoilo.learn.driver.run import Run, RunSettings, Watcher
from stoilo.learn.methods.optimizers import Adam
from stoilo.learn.methods.synchronous import Synchronous, SynchronousSettings

__all__ = ["EPOCHS", "KEYS", "PARTS", "STEPS", "make_run", "squares"]

EPOCHS, STEPS, PARTS = 2, 2, 4
KEYS = frozenset(
    f"e{epoch}/s{step}/p{part}"
    for epoch in range(EPOCHS)
    for step in range(STEPS)
    for part in range(PARTS)
)
"""Every piece of work of the training, each once."""
_BLOCK, _WIDTH = 4, 6


def squares(
    parameters: Tensors, x: NDArray[np.float64], y: NDArray[np.float64]
) -> tuple[float, dict[str, NDArray[np.float64]]]:
    """Return the sum of squared rests of a linear model, and its gradient."""
    rest = x @ parameters["w"] - y
    return float((rest**2).sum()), {"w": 2 * x.T @ rest}


def make_run(
    folder: Path | None,
    backend: Backend | None = None,
    function: Callable[..., Any] = squares,
    watcher: Watcher | None = None,
) -> Run:
    """Return the training in a folder; on one thread here without a backend.

    A server needs a `function` of the caller's own module, since none of stoilo's travels
    as source; `watcher` is the run's. The rows of its steps (`_BLOCK` of each part) are
    shuffled; the optimiser has a state.
    """
    rng = np.random.default_rng(0)
    size = _BLOCK * STEPS
    x, y = rng.normal(size=(size * PARTS, _WIDTH)), rng.normal(size=size * PARTS)
    model = ArrayModel({"w": np.zeros(_WIDTH)}, function)
    settings = SynchronousSettings(epochs=EPOCHS, block=_BLOCK)
    method = Synchronous(model.first(), [size] * PARTS, Adam(0.1), settings)
    return Run(
        method,
        model,
        split(x, y, PARTS),
        backend or LocalBackend(1),
        RunSettings(folder=folder, in_flight=PARTS - 1),
        watcher=watcher,
    )
