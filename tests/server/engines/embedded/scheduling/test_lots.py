"""Accounts that call one right after the other do not get the same workunits."""

from __future__ import annotations

import random

import pytest
from engine_bench import EmbeddedBench

from stoilo.server.engines.embedded.engine import EngineOptions
from tests.support.engine import make_spec

USERS = range(1, 11)
ROOM = 8
WORKUNITS = len(USERS) * ROOM  # of two copies: two rounds take nearly all


def shared_by_two_in_step(directory, clock, lots):
    """Return which part of one account's workunits the next one to call has, too."""
    bench = EmbeddedBench(directory, clock, EngineOptions(lots=lots))
    bench.engine.create_workunits([make_spec(f"w_{n}") for n in range(WORKUNITS)])
    given = {user: set() for user in USERS}
    for _ in range(2):
        for user in USERS:
            copies = bench.fetch(user, room=ROOM)
            given[user] |= {copy.rpartition("_")[0] for copy in copies}
    bench.engine.close()
    assert len(given[1]) == len(given[2]) == 2 * ROOM
    return len(given[1] & given[2]) / len(given[1])


@pytest.mark.parametrize("seed", [1, 2, 3])
def test_accounts_in_step_share_few_workunits(tmp_path, clock, seed):
    lots = random.Random(seed).random
    assert shared_by_two_in_step(tmp_path / "engine", clock, lots) < 0.3


def test_accounts_in_step_share_most_workunits_when_all_lots_are_the_same(
    tmp_path, clock
):
    assert shared_by_two_in_step(tmp_path / "engine", clock, lambda: 0.5) > 0.9


def test_every_copy_goes_out_in_the_end(tmp_path, clock):
    bench = EmbeddedBench(tmp_path / "engine", clock)
    bench.engine.create_workunits([make_spec(f"w_{n}") for n in range(40)])
    got = [copy for user in range(1, 14) for copy in bench.fetch(user)]
    assert len(got) == len(set(got)) == 80
    bench.engine.close()
