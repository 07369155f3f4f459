"""A parameter server: who may be how far ahead, in which portions, and what survives.

Each iteration stalls for six times its length with a chance of one in ten. With the limit
0 (BSP) everybody waits for the stalled one; with 3 (SSP) the others go on meanwhile; with
None (ASP) nobody ever waits. Four modes cut the work differently; shards that are processes
of their own keep what they have on disk, and a second training begins where one ended.
"""

import tempfile
from pathlib import Path

import digits
import numpy as np
from commandline import run

import stoilo
from stoilo import learn
from stoilo.learn.methods.logistic import Mode

WORKERS = 8
ROUNDS = 12
CLOCKS = {"BSP": 0, "SSP 3": 3, "ASP": None}
MODES: tuple[tuple[Mode, int, float], ...] = (
    ("dgd", ROUNDS, 0.0005),
    ("ipm", ROUNDS, 0.05),
    ("downpour", 6, 0.01),
    ("agd", 1, 0.01),
)
"""Mode, passes over the data, rate; an iteration of agd is one sample: one pass will do."""


async def main(conn: stoilo.Connection | None) -> None:
    """Compare clocks, then modes, and go on from shards on disk."""
    x, y = digits.load().train
    data = x, (y % 2 == 0).astype(float)
    await compare_clocks(conn, data)
    await compare_modes(data)
    await keep_on_disk(conn, data)


async def compare_clocks(conn, data) -> None:
    """Train with each limit, and compare when each has made its rounds."""
    place = conn or volunteers(stall=0.1)
    found = {}
    for name, limit in CLOCKS.items():
        settings = learn.LogisticSettings("ipm", rounds=ROUNDS, rate=0.01, limit=limit)
        found[name] = await train(place, data, settings)
        print(f"{name}: loss {found[name][0]:.3f} after {found[name][1]:.0f} s")
    assert max(loss for loss, _ in found.values()) < 0.4
    if conn is None:
        assert found["BSP"][1] > 1.5 * found["SSP 3"][1]


async def compare_modes(data) -> None:
    """Train in each mode; simulated in any case, for agd makes a task of each sample."""
    for mode, rounds, rate in MODES:
        settings = learn.LogisticSettings(mode, rounds=rounds, rate=rate, limit=0)
        loss, _ = await train(volunteers(), data, settings)
        print(f"{mode}: loss {loss:.3f} after {rounds} passes")
        assert loss < 0.55


async def keep_on_disk(conn, data) -> None:
    """Train twice for a few rounds, on shards that are processes and leave files."""
    settings = learn.LogisticSettings("ipm", rounds=3, rate=0.01, limit=0)
    losses = []
    with tempfile.TemporaryDirectory() as name:
        for _ in range(2):
            server = learn.ParameterServer.open(Path(name), 2, processes=True)
            try:
                loss, _ = await train(conn or volunteers(), data, settings, server)
            finally:
                server.close()
            losses.append(loss)
    print(f"on disk: loss {losses[0]:.3f}, and from there {losses[1]:.3f}")
    once, _ = await train(volunteers(), data, settings)
    assert abs(losses[0] - once) < 1e-6
    assert losses[1] < losses[0] - 0.02


def volunteers(stall: float = 0.0) -> learn.SimulatedBackend:
    """Return as many volunteers as workers, on a virtual clock."""
    return learn.SimulatedBackend(
        [learn.SimulatedHost(stall=stall, poll_s=0.0)] * WORKERS
    )


async def train(place, data, settings, server=None) -> tuple[float, float]:
    """Return the loss on all data in the end, and when that was, s."""
    options = learn.TrainerOptions(tasks=WORKERS)
    async with learn.LogisticTrainer(
        place, data, settings, server=server, options=options
    ) as trainer:
        trained = await trainer.train()
        history = trainer.run.history
    score = data[0] @ trained.model["theta"]
    losses = np.logaddexp(0.0, score) - data[1] * score
    return float(losses.mean()), history.times[-1] - history.times[0]


if __name__ == "__main__":
    run(main, __doc__)
