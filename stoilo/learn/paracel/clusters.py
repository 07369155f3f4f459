"""What is alike: k-means, similar columns, the best lines; counts of words, ranks of pages."""

from __future__ import annotations

import functools

import numpy as np

from stoilo.learn.core.tensors import Array, Tensors
from stoilo.learn.kernels.programs import (
    best,
    cross,
    flow,
    gram,
    merge_best,
    nearest,
    words,
)
from stoilo.learn.paracel.program import Program
from stoilo.learn.store.functions import Probe, UpdateFunction, register


def kmeans(centres: Array, rounds: int = 100) -> Program:
    """Return Lloyd's rounds from these centres; one that nobody is next to stays."""
    start = {"centres": np.array(centres, float), "counts": np.zeros(len(centres))}

    def step(here: Tensors, sums: Tensors) -> Tensors:
        counts = sums["counts"][:, None]
        # A mean of the parts' means would weigh a part of one sample like one of a thousand.
        means = sums["centres"] / np.maximum(counts, 1.0)
        found = np.where(counts > 0.0, means, here["centres"])
        return {"centres": found, "counts": sums["counts"]}

    return Program(start, nearest, step, rounds, is_lenient=True)


def word_count(words_known: int) -> Program:
    """Return the program that counts numbers of words (lines of them, filled up with -1)."""

    def step(_: Tensors, sums: Tensors) -> Tensors:
        return sums

    return Program({"counts": np.zeros(words_known)}, words, step)


def similarity(columns: int, *, sparse: bool = False) -> Program:
    """Return the cosines between all columns (``similar``), 0 for a column of zeros.

    Of lines of numbers; `sparse`: of samples (row, column) with the values as targets, all of
    a row in one part (``text_files.deal_by_key``).
    """
    square = np.zeros((columns, columns))
    name = "products" if sparse else "gram"

    def step(_: Tensors, sums: Tensors) -> Tensors:
        sizes = np.sqrt(np.diagonal(sums[name]))
        scale = np.where(sizes > 0.0, sizes, 1.0)
        return {"similar": sums[name] / scale / scale[:, None]}

    if sparse:
        return Program({name: square, "similar": square}, cross, step)
    zeros = {"theta": np.zeros(columns), "moment": np.zeros(columns)}
    room = {**zeros, "samples": np.zeros(1), name: square, "similar": square}
    return Program(room, gram, step)


@functools.cache
def choosing() -> UpdateFunction:
    """Return the update function of `best_lines`: a parameter server has to know it."""
    one, other = np.array([[2.0, 4.0], [1.0, 3.0]]), np.array([[2.0, 2.0], [0.0, 0.0]])
    return register("best", merge_best, Probe(np.zeros((2, 2)), one, other))


def best_lines(query: Array, number: int) -> Program:
    """Return the program that finds the lines with the largest product with `query` (top-k).

    Targets are the lines' numbers, from 0. It finds ``best``: (product, number + 1) a row,
    the largest first; 0 is no line, of equal ones the first counts.
    """

    def step(_: Tensors, sums: Tensors) -> Tensors:
        return sums

    start = {"query": np.array(query, float), "best": np.zeros((number, 2))}
    return Program(start, best, step, update=choosing())


def pagerank(pages: int, rounds: int = 100, damping: float = 0.85) -> Program:
    """Return PageRank: samples are links (from, to), targets their weights.

    Round 0 counts what leaves each page, the ranks sum to 1.
    What a page without links holds goes to all pages alike.
    """
    start = {"rank": np.full(pages, 1.0 / pages), "out": np.zeros(pages)}

    def step(here: Tensors, sums: Tensors) -> Tensors:
        if not here["out"].any():
            return {"out": sums["out"]}
        idle = here["rank"][here["out"] == 0.0].sum()
        rank = (1.0 - damping + damping * idle) / pages + damping * sums["rank"]
        return {"rank": rank}

    return Program(start, flow, step, 1 + rounds, is_lenient=True)
