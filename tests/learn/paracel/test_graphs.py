"""PageRank against the solution of its equations; ranks that are lost where links end."""

import numpy as np
import pytest

from stoilo.learn.paracel.graphs import largest, pagerank

PAGES = 30


def web(seed):
    """Links with weights; pages 0 to 2 have none."""
    rng = np.random.default_rng(seed)
    links = np.stack([rng.integers(3, PAGES, 150), rng.integers(0, PAGES, 150)], axis=1)
    return links, rng.uniform(0.5, 2.0, 150)


def solved(links, weights, *, idle):
    """Solve ``r = (1 - d)/n + d P r``; what idle pages hold goes to all, or is lost."""
    matrix = np.zeros((PAGES, PAGES))
    np.add.at(matrix, (links[:, 1], links[:, 0]), weights)
    out = matrix.sum(0)
    matrix = matrix / np.where(out > 0, out, 1.0)
    matrix[:, out == 0] = 1.0 / PAGES if idle else 0.0
    return np.linalg.solve(np.eye(PAGES) - 0.85 * matrix, np.full(PAGES, 0.15 / PAGES))


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
    rank = (await run_apart(pagerank(PAGES, 250), links, weights, staleness))["rank"]
    assert np.abs(rank - solved(links, weights, idle=True)).max() < 1e-9


async def test_largest_value_goes_as_far_as_links_do(run):
    links = np.tile(np.stack([np.arange(9), np.arange(1, 10)], axis=1), (3, 1))
    values = np.zeros(12)
    values[[0, 4]] = 7.0, 3.0
    near = (await run(largest(values, 2), links, np.ones(27)))["values"]
    far = (await run(largest(values, 9), links, np.ones(27)))["values"]
    assert near.tolist() == [7, 7, 7, 0, 3, 3, 3, 0, 0, 0, 0, 0]
    assert far.tolist() == [7.0] * 10 + [0.0] * 2
