"""How good a version is on data that no volunteer trained with: computed here."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from stoilo.core.errors import UsageError
from stoilo.learn.core.data import Part
from stoilo.learn.core.models import Model, make_arguments, torch_lock
from stoilo.learn.core.orders import Reply, Snapshot
from stoilo.learn.core.tensors import Array, Form, forms_of
from stoilo.learn.driver.acceptance import Expectation, check_reply


@dataclass(frozen=True, slots=True)
class Scores:
    """Means over the classes, each from 0 to 1.

    Attributes:
        precision: of what was taken for a class, the share that is of it.
        recall: of a class, the share that was taken for it.
        f1: harmonic mean of both, class by class, then the mean of those.
        classes: how many classes occur or are predicted.
    """

    precision: float
    recall: float
    f1: float
    classes: int


def count_confusion(labels: Array, predicted: Array) -> NDArray[np.int64]:
    """Return how often a class (row) was taken for which (column): (classes, classes).

    Classes are the labels that occur on either side, in their order.

    Raises:
        UsageError: ``STO-T004`` unless there are as many of one as of the other.
    """
    if labels.shape != predicted.shape or labels.ndim != 1 or not len(labels):
        raise UsageError(
            "STO-T004",
            f"{labels.shape} labels and {predicted.shape} predictions do not compare",
            hint="one whole number a sample on both sides",
        )
    classes, index = np.unique(np.concatenate([labels, predicted]), return_inverse=True)
    counts = np.zeros((len(classes), len(classes)), np.int64)
    np.add.at(counts, (index[: len(labels)], index[len(labels) :]), 1)
    return counts


def score(confusion: NDArray[np.int64]) -> Scores:
    """Return the macro means of a confusion matrix (rows are what is true)."""
    right = np.diag(confusion).astype(np.float64)
    precision = right / np.maximum(confusion.sum(axis=0), 1)
    recall = right / np.maximum(confusion.sum(axis=1), 1)
    both = precision + recall
    # A class that is never right has F1 0, not 0/0.
    f1 = 2.0 * precision * recall / np.where(both > 0.0, both, 1.0)
    return Scores(
        float(precision.mean()), float(recall.mean()), float(f1.mean()), len(confusion)
    )


BATCH = 1024  # samples computed at once


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
    kwargs = make_arguments(model, snapshot, part, {"labels": True})
    with torch_lock(model.level):
        raw = model.kernel("evaluate")(kwargs)
    labels = {"labels": Form("int64", (len(part),))} if raw["tensors"] else {}
    return check_reply(
        raw,
        Expectation(snapshot.version, len(part), labels, forms_of(snapshot.buffers)),
    )
