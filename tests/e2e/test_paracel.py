"""Programs at a server, by gate, log and jail: what travels with a part comes back with it."""

import asyncio

import numpy as np
import pytest

import stoilo
from stoilo.client.session import Journal
from stoilo.learn.paracel.factors import biased_factors
from stoilo.learn.paracel.linear import consensus_lasso
from stoilo.learn.paracel.program import train
from stoilo.learn.paracel.topics import find_topics
from stoilo.learn.trainers.options import TrainerOptions
from stoilo.testing.deployment import Deployment

RNG = np.random.default_rng(0)
LINES = RNG.integers(-1, 9, (20, 7))
X = RNG.standard_normal((40, 3))
LINKS, STARS = RNG.integers(0, 5, (40, 2)), RNG.integers(1, 6, 40) * 1.0
PROGRAMS = [
    (find_topics(7, 9, 3, sweeps=2), LINES, np.zeros(20), 0),
    (find_topics(7, 9, 3, sweeps=2), LINES, np.zeros(20), 2),
    (consensus_lasso(3, 0.1, 4), X, X @ np.array([1.0, 0.0, -2.0]), 0),
    (biased_factors(X[:5], X[5:10], rounds=3), LINKS, STARS, 0),
]


@pytest.mark.slow
def test_volunteers_find_what_threads_find(tmp_path):
    with Deployment(tmp_path / "data", volunteers=2) as deployment:
        asyncio.run(compare(deployment.line.connection, tmp_path / "journal"))


async def compare(connection, journal):
    options = TrainerOptions(tasks=2)
    async with stoilo.connect(connection, journal=Journal(journal)) as conn:
        for program, x, y, staleness in PROGRAMS:
            common = {"staleness": staleness, "options": options}
            there = await train(conn, (x, y), program, **common)
            if staleness:  # which part was first is nobody's to say
                assert there["counts"].sum() == (x >= 0).sum()
                continue
            here = await train(None, (x, y), program, **common)
            assert all(np.allclose(there[n], here[n], atol=1e-12) for n in here)
            assert any((there[n] != a).any() for n, a in program.start.items())
