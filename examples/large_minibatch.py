"""Large minibatches: k volunteers make one step of k blocks, with k times the rate.

The rate of one block would take k times as many rounds. Scaled at once it is too large for
the first steps: it is warmed up, a little more with each of them.
"""

import digits
from commandline import run

import stoilo
from stoilo import learn

WORKERS = 8
BLOCK = 16


async def main(conn: stoilo.Connection | None) -> None:
    """Train with the block's rate, and with the scaled and warmed-up one."""
    data = digits.load()
    unscaled = await train(conn, data, rate=0.02 / WORKERS, warmup=0.0)
    scaled = await train(conn, data, rate=0.02, warmup=1.0)
    print(
        f"rate of one block: {unscaled:.1%} right; scaled and warmed up: {scaled:.1%}"
    )
    assert scaled > max(unscaled, 0.9)


async def train(conn, data, rate, warmup) -> float:
    """Return the share of the held-out images that is right in the end."""
    settings = learn.LargeMinibatchSettings(
        epochs=3, block=BLOCK, rate=rate, warmup=warmup
    )
    options = learn.TrainerOptions(tasks=WORKERS)
    async with learn.LargeMinibatchTrainer(
        conn, digits.network(), data.train, settings, options=options
    ) as trainer:
        trained = await trainer.train()
    print([round(epoch.average_loss, 3) for epoch in trained.epochs])
    return digits.accuracy(trained.model, *data.held_out)


if __name__ == "__main__":
    run(main, __doc__)
