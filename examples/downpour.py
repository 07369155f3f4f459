"""Downpour: sixteen replicas push gradients and never wait; Adagrad makes that bearable.

Each answer belongs to a version that some fifteen others have changed since. Plain SGD at
a rate that is good for one replica alone then breaks; Adagrad, whose state stays at the
trainer, shortens each parameter's steps by what it has seen.
"""

import digits
from commandline import run

import stoilo
from stoilo import learn

REPLICAS = 16
SETTINGS = learn.DownpourSettings(passes=6, batch=20)


async def main(conn: stoilo.Connection | None) -> None:
    """Train with both optimisers on the same data, from the same weights."""
    data = digits.load()
    adagrad = await train(conn, data, learn.Adagrad(0.05))
    sgd = await train(conn, data, learn.Sgd(0.5))
    print(f"Adagrad: {adagrad:.1%} right, plain SGD: {sgd:.1%}")
    assert adagrad > 0.85 > 2 * sgd


async def train(conn, data, optimizer) -> float:
    """Return the share of the held-out images that is right in the end."""
    options = learn.TrainerOptions(tasks=REPLICAS, in_flight=REPLICAS)
    async with learn.DownpourTrainer(
        conn,
        digits.network(),
        data.train,
        SETTINGS,
        optimizer=optimizer,
        options=options,
    ) as trainer:
        trained = await trainer.train()
    stale = trained.epochs[-1].staleness
    print(
        f"{type(optimizer).__name__}: answers were {stale:.1f} versions old on average"
    )
    return digits.accuracy(trained.model, *data.held_out)


if __name__ == "__main__":
    run(main, __doc__)
