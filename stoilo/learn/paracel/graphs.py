"""PageRank: samples are links (from, to), their targets the links' weights."""

from __future__ import annotations

import numpy as np

from stoilo.learn.core.tensors import Tensors
from stoilo.learn.kernels.programs import flow
from stoilo.learn.paracel.program import Program


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
