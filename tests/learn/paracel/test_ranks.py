"""PageRank against the solution of its equations; ranks that are lost where links end."""

import numpy as np
import pytest

from stoilo.learn.paracel.clusters import pagerank

PAGES = 30


def web(seed):
    """Links with weights; pages 0 to 2 have none."""
    rng = np.random.default_rng(seed)
    links = np.stack([rng.integers(3, PAGES, 150), rng.integers(0, PAGES, 150)], axis=1)
    return links, rng.uniform(0.5, 2.0, 150)


def solved(links, weights, *, idle, damping=0.85):
    """Solve ``r = (1 - d)/n + d P r``; what idle pages hold goes to all, or is lost."""
    matrix = np.zeros((PAGES, PAGES))
    np.add.at(matrix, (links[:, 1], links[:, 0]), weights)
    out = matrix.sum(0)
    matrix = matrix / np.where(out > 0, out, 1.0)
    matrix[:, out == 0] = 1.0 / PAGES if idle else 0.0
    rest = np.full(PAGES, (1.0 - damping) / PAGES)
    return np.linalg.solve(np.eye(PAGES) - damping * matrix, rest)


@pytest.mark.parametrize("seed", range(5))
async def test_ranks_solve_their_equations(seed, run):
    links, weights = web(seed)
    rank = (await run(pagerank(PAGES, 150), links, weights))["rank"]
    assert np.abs(rank - solved(links, weights, idle=True)).max() < 1e-11
    assert abs(rank.sum() - 1.0) < 1e-12
    lost = solved(links, weights, idle=False)
    assert lost.sum() < 0.95


async def test_few_rounds_are_not_enough(run):
    links, weights = web(0)
    rank = (await run(pagerank(PAGES, 2), links, weights))["rank"]
    assert np.abs(rank - solved(links, weights, idle=True)).max() > 1e-4


@pytest.mark.parametrize("staleness", [1, 3])
async def test_parts_that_are_rounds_apart_find_the_same_ranks(staleness, run_apart):
    links, weights = web(0)
    program = pagerank(PAGES, 200, damping=0.5)
    rank = (await run_apart(program, links, weights, staleness))["rank"]
    # A part may see what is staleness + 1 rounds old: so much more slowly it shrinks.
    want = solved(links, weights, idle=True, damping=0.5)
    assert np.abs(rank - want).max() < 1e-9
