"""How good a version is on data that no volunteer trained with: computed here."""

from __future__ import annotations

import copy
from dataclasses import dataclass

import numpy as np

from stoilo.learn.acceptance import Expectation, check_reply
from stoilo.learn.data import Part
from stoilo.learn.models import Model
from stoilo.learn.tensors import forms_of
from stoilo.learn.work import Reply, Snapshot

__all__ = ["Evaluation", "evaluate"]

BATCH = 1024
"""Samples computed at once."""


@dataclass(frozen=True, slots=True)
class Evaluation:
    """Loss and accuracy on held-out samples.

    Attributes:
        loss: mean of the samples' losses.
        accuracy: share that was classified rightly; None where the kernel does not count
            (models of plain arrays, targets that are not labels).
        samples: how many.
    """

    loss: float
    accuracy: float | None
    samples: int


def evaluate(
    model: Model, snapshot: Snapshot, held_out: Part, batch: int = BATCH
) -> Evaluation:
    """Return how good `snapshot` is, by the kernel ``evaluate`` run in this process.

    The researcher's objects stay as they are: copies are computed with.

    Raises:
        TrustError: ``STO-T010`` when the loss is not a finite number.
    """
    replies = [
        _answer(model, snapshot, held_out, start, batch)
        for start in range(0, len(held_out), batch)
    ]
    right = sum(reply.correct for reply in replies)
    counted = all(reply.correct >= 0 for reply in replies)
    size = len(held_out)
    loss = sum(reply.loss_sum for reply in replies) / size
    return Evaluation(loss, right / size if counted else None, size)


def _answer(
    model: Model, snapshot: Snapshot, held_out: Part, start: int, batch: int
) -> Reply:
    x, y = held_out.x[start : start + batch], held_out.y[start : start + batch]
    kwargs = {
        **copy.deepcopy(dict(model.constants())),
        "parameters": {n: np.array(a) for n, a in snapshot.parameters.items()},
        "buffers": {n: np.array(a) for n, a in snapshot.buffers.items()},
        "data": {"x": np.array(x), "y": np.array(y)},
        "rows": None,
        "settings": {},
        "version": snapshot.version,
    }
    expected = Expectation(snapshot.version, len(x), {}, forms_of(snapshot.buffers))
    return check_reply(model.kernel("evaluate")(kwargs), expected)
