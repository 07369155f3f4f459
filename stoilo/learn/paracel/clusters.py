"""k-means, and counts of words: sums of the parts first, quotients afterwards."""

from __future__ import annotations

import numpy as np

from stoilo.learn.core.tensors import Array, Tensors
from stoilo.learn.kernels.programs import nearest, words
from stoilo.learn.paracel.program import Program


def kmeans(centres: Array, rounds: int = 100) -> Program:
    """Return Lloyd's rounds from these centres; one that nobody is next to stays."""
    start = {"centres": np.array(centres, float), "counts": np.zeros(len(centres))}

    def step(here: Tensors, sums: Tensors) -> Tensors:
        counts = sums["counts"][:, None]
        # A mean of the parts' means would weigh a part of one sample like one of a thousand.
        means = sums["centres"] / np.maximum(counts, 1.0)
        found = np.where(counts > 0.0, means, here["centres"])
        return {"centres": found, "counts": sums["counts"]}

    return Program(start, nearest, step, rounds)


def word_count(words_known: int) -> Program:
    """Return the program that counts numbers of words (lines of them, filled up with -1)."""

    def step(_: Tensors, sums: Tensors) -> Tensors:
        return sums

    return Program({"counts": np.zeros(words_known)}, words, step)
