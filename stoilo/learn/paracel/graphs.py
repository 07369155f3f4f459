"""PageRank, values in reach: samples are links (from, to), their targets the weights."""

from __future__ import annotations

import numpy as np

from stoilo.learn.core.tensors import Array, Tensors
from stoilo.learn.kernels.programs import flow, reach
from stoilo.learn.paracel.program import Program
from stoilo.learn.store.functions import built_in


def pagerank(pages: int, rounds: int = 100, damping: float = 0.85) -> Program:
    """Return the program; round 0 counts what leaves each page, the ranks sum to 1.

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


def largest(values: Array, rounds: int) -> Program:
    """Return the largest value, none below 0, that reaches each page in so many links."""

    def step(here: Tensors, sums: Tensors) -> Tensors:
        return {"values": np.maximum(here["values"], sums["values"])}

    start = {"values": np.array(values, float)}
    return Program(start, reach, step, rounds, update=built_in()["max"])
