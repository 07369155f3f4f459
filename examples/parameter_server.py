"""A parameter server's clock: who may be how far ahead of the slowest.

Each iteration stalls for six times its length with a chance of one in ten. With the limit
0 (BSP) everybody waits for the stalled one; with 3 (SSP) the others go on meanwhile; with
None (ASP) nobody ever waits.
"""

import digits
import numpy as np
from commandline import run

import stoilo
from stoilo import learn

WORKERS = 8
ROUNDS = 12
CLOCKS = {"BSP": 0, "SSP 3": 3, "ASP": None}


async def main(conn: stoilo.Connection | None) -> None:
    """Train until a loss that BSP reaches, and compare when each gets there."""
    data = digits.load()
    x, y = data.train
    is_even = (y % 2 == 0).astype(float)
    found = {n: await train(conn, (x, is_even), limit) for n, limit in CLOCKS.items()}
    for name, (loss, seconds) in found.items():
        print(f"{name}: loss {loss:.3f} after {seconds:.0f} s")
    assert max(loss for loss, _ in found.values()) < 0.4
    if conn is None:
        assert found["BSP"][1] > 1.5 * found["SSP 3"][1]


async def train(conn, data, limit) -> tuple[float, float]:
    """Return the loss on all data in the end, and when that was, s."""
    place = conn or learn.SimulatedBackend(
        [learn.SimulatedHost(stall=0.1, poll_s=0.0)] * WORKERS
    )
    settings = learn.LogisticSettings("ipm", rounds=ROUNDS, rate=0.01, limit=limit)
    options = learn.TrainerOptions(tasks=WORKERS)
    async with learn.LogisticTrainer(place, data, settings, options=options) as trainer:
        trained = await trainer.train()
        history = trainer.run.history
    score = data[0] @ trained.model["theta"]
    losses = np.logaddexp(0.0, score) - data[1] * score
    return float(losses.mean()), history.times[-1] - history.times[0]


if __name__ == "__main__":
    run(main, __doc__)
