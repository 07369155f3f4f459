"""Scores of a classifier from how often each class was taken for which.

Macro means: every class counts alike, however many samples it has. A class that is never
predicted has precision 0, one that never occurs recall 0; what neither occurs nor is
predicted does not count.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from stoilo.core.errors import UsageError
from stoilo.learn.tensors import Array

__all__ = ["Scores", "count_confusion", "score"]


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
        UsageError: ``STO-T034`` unless there are as many of one as of the other.
    """
    if labels.shape != predicted.shape or labels.ndim != 1 or not len(labels):
        raise UsageError(
            "STO-T034",
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
    f1 = 2.0 * precision * recall / np.where(both > 0.0, both, 1.0)
    return Scores(
        float(precision.mean()), float(recall.mean()), float(f1.mean()), len(confusion)
    )
