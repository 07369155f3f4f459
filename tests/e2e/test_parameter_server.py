"""The four modes on shards of their own, by volunteers behind gate, log and jail."""

import asyncio
import os
import signal

import numpy as np
import pytest

import stoilo
from stoilo import learn
from stoilo.client.session import Journal
from stoilo.testing.deployment import Deployment

MODES = {
    "dgd": {"rounds": 3, "rate": 0.02},
    "ipm": {"rounds": 2, "rate": 0.1, "limit": 1},
    "downpour": {"rounds": 1, "rate": 0.05, "limit": 3, "push": 10},
    "agd": {"rounds": 1, "rate": 0.1, "limit": None},
}
PARTS = 2


def samples(count):
    rng = np.random.default_rng(0)
    x = rng.standard_normal((count, 5))
    return x, (x @ np.array([2.0, -1.0, 0.5, 0.0, 1.0]) > 0).astype(float)


async def leaves_of(conn):
    tasks = [conn.restore_task(entry.task_id) for entry in conn.recent_tasks(1000)]
    found = [await task.status() for task in tasks]
    return {(s.task_id, s.attempt): s.log_index for s in found if s.logged}


async def train(conn, mode, folder):
    """Train in one mode, killing both shards after the first update."""
    server = learn.ParameterServer.open(folder, 2, processes=True)
    data = samples(6 if mode == "agd" else 40)
    settings = learn.LogisticSettings(
        mode, **MODES[mode], block_bytes=16, lease_s=600.0
    )
    options = learn.TrainerOptions(tasks=PARTS, clip=None)
    updates = []
    async with learn.LogisticTrainer(
        conn, data, settings, server=server, options=options
    ) as trainer:
        async for update in trainer:
            updates.append(update.update)
            if len(updates) == 1:
                for shard in server.shards.values():
                    os.kill(shard.process.pid, signal.SIGKILL)
    await asyncio.to_thread(server.close)
    return trainer.snapshot.parameters["theta"], updates, data


@pytest.mark.slow
def test_four_modes_learn_through_the_jail_while_shards_are_killed(
    tmp_path, monkeypatch
):
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))

    async def work(connection):
        journal = Journal(tmp_path / "journal")
        done = 0
        async with stoilo.connect(connection, journal=journal) as conn:
            for mode in MODES:
                theta, updates, (x, y) = await train(conn, mode, tmp_path / mode)
                assert ((x @ theta > 0) == (y > 0)).mean() >= 0.8, mode
                keys = [update.key for update in updates if update.applied]
                assert len(keys) == len(set(keys)), mode
                done += len(updates)
            return done, list((await leaves_of(conn)).values())

    with Deployment(tmp_path / "data", volunteers=2) as running:
        done, leaves = asyncio.run(work(running.line.connection))
    assert len(leaves) == len(set(leaves)) == done
