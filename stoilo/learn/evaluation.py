"""How good a version is on data that no volunteer trained with: computed here."""

from __future__ import annotations

import copy
import math
from dataclasses import dataclass

import numpy as np

from stoilo.learn.acceptance import Expectation, check_reply
from stoilo.learn.data import Part
from stoilo.learn.models import Model
from stoilo.learn.scores import Scores, count_confusion, score
from stoilo.learn.tensors import Array, Form, forms_of
from stoilo.learn.turns import take_turn
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
            (models of plain arrays without ``predict``, targets that are not labels).
        samples: how many.
        scores: precision, recall and F1, means over the classes; None where accuracy is.
    """

    loss: float
    accuracy: float | None
    samples: int
    scores: Scores | None = None


def evaluate(
    model: Model, snapshot: Snapshot, held_out: Part, batch: int = BATCH
) -> Evaluation:
    """Return how good `snapshot` is, by the kernel ``evaluate`` run in this process.

    The researcher's objects stay as they are: copies are computed with.

    Raises:
        TrustError: ``STO-T010`` when the loss is not a finite number.
    """
    replies = [
        _answer(model, snapshot, held_out.take(slice(start, start + batch)))
        for start in range(0, len(held_out), batch)
    ]
    right = sum(reply.correct for reply in replies)
    counted = all(reply.correct >= 0 for reply in replies)
    size = len(held_out)
    loss = math.fsum(reply.loss_sum for reply in replies) / size
    return Evaluation(
        loss, right / size if counted else None, size, _score(replies, held_out)
    )


def _score(replies: list[Reply], held_out: Part) -> Scores | None:
    found: list[Array] = [r.tensors["labels"] for r in replies if "labels" in r.tensors]
    if len(found) < len(replies) or isinstance(held_out.y, tuple):
        return None
    return score(count_confusion(held_out.y, np.concatenate(found)))


def _answer(model: Model, snapshot: Snapshot, part: Part) -> Reply:
    kwargs = {
        **copy.deepcopy(dict(model.constants())),
        "parameters": {n: np.array(a) for n, a in snapshot.parameters.items()},
        "buffers": {n: np.array(a) for n, a in snapshot.buffers.items()},
        "data": copy.deepcopy({"x": part.x, "y": part.y}),
        "rows": None,
        "settings": {"labels": True},
        "version": snapshot.version,
    }
    with take_turn(model.level):
        raw = model.kernel("evaluate")(kwargs)
    labels = {"labels": Form("int64", (len(part),))} if raw["tensors"] else {}
    return check_reply(
        raw,
        Expectation(snapshot.version, len(part), labels, forms_of(snapshot.buffers)),
    )
