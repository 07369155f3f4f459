"""Topics of documents: latent Dirichlet allocation by collapsed Gibbs sampling.

Each part sweeps over its own documents with a copy of everybody's counts (approximate
distributed LDA, Newman et al. 2009). The topic of every word is a label that travels with its
part; a part gives the counts of its labels as they are, never a difference, so that the
counts of all are the words of all whatever was lost or done twice.
"""

from __future__ import annotations

import numpy as np

from stoilo.core.errors import UsageError
from stoilo.learn.core.tensors import Array, Tensors
from stoilo.learn.kernels.programs import topics
from stoilo.learn.paracel.program import Program


def find_topics(
    longest: int,
    words_known: int,
    number: int,
    *,
    sweeps: int = 100,
    alpha: float = 0.1,
    beta: float = 0.1,
    seed: int = 0,
) -> Program:
    """Return the program; what it finds is ``counts``, (words, topics).

    Args:
        longest: words of the longest document: samples are lines of so many numbers of words,
            filled up with -1.
        words_known: how many words there are.
        number: of topics.
        sweeps: over all documents; one more at first deals topics out at random.
        alpha: of the prior on a document's topics.
        beta: of the prior on a topic's words.
        seed: of the draws, with the sweep and the part.
    """
    if number < 1 or not alpha > 0.0 or not beta > 0.0:
        raise UsageError("STO-T040", "topics, alpha and beta must be positive")
    start = {
        "counts": np.zeros((words_known, number)),
        "priors": np.array([alpha, beta, seed]),
        "sweep": np.zeros(1),
    }

    def own(part: int, documents: int) -> dict[str, Array]:
        labels = np.zeros((documents, longest))
        return {"labels": labels, "part": np.array([1.0 * part])}

    def step(here: Tensors, sums: Tensors) -> Tensors:
        return {"counts": sums["counts"], "sweep": here["sweep"] + 1.0}

    return Program(
        start, topics, step, 1 + sweeps, own=own, check=_can_be, is_lenient=True
    )


def _can_be(given: Tensors, found: Tensors) -> bool:
    """Return whether labels are topics of the words that had one, and counts theirs."""
    labels, counts, before = found["labels"], found["counts"], given["labels"]
    number = counts.shape[1]
    if not np.isin(labels, np.arange(number + 1.0)).all() or counts.min() < 0.0:
        return False
    sizes = np.bincount(labels.astype(np.int64).ravel(), minlength=number + 1)[1:]
    same = not before.any() or np.array_equal(labels > 0.0, before > 0.0)
    return bool(same and np.array_equal(sizes, counts.sum(axis=0)))


def perplexity(found: Tensors, documents: Array, rounds: int = 50) -> float:
    """Return exp of the mean minus log likelihood of the documents' words.

    With the shares of topics that fit each document, by `rounds` of expectation maximisation
    under the prior: also of documents never seen.
    """
    counts, (alpha, beta, _) = found["counts"], found["priors"]
    chances = (counts + beta) / (counts.sum(0) + len(counts) * beta)
    total, size = 0.0, 0
    for document in documents:
        words = chances[document[document >= 0]]
        tally = np.zeros(counts.shape[1])
        for _ in range(rounds):
            odds = words * (tally + alpha)
            tally = (odds / odds.sum(1, keepdims=True)).sum(0)
        share = (tally + alpha) / (tally.sum() + alpha * len(tally))
        total += float(np.log(words @ share).sum())
        size += len(words)
    return float(np.exp(-total / size))
