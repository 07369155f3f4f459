"""VC-ASGD: volunteers train their part and send weights; each answer is mixed in at once.

The model keeps `alpha` of itself at each answer. Near 1 it crawls; with e/(e+1) it grows
from epoch to epoch, which learns fastest at the start and settles at the end.
"""

import digits
from commandline import run

import stoilo
from stoilo import learn

PARTS = 14
WORK = learn.LocalWork(rate=0.5, batch=10)


async def main(conn: stoilo.Connection | None) -> None:
    """Train one epoch with each alpha, then five with the one that grows."""
    data = digits.load()
    for alpha in (0.7, 0.95, 0.99):
        right = await train(conn, data, alpha, epochs=1)
        print(f"alpha {alpha}: {right:.1%} right after one epoch")
    right = await train(conn, data, "e/(e+1)", epochs=5)
    print(f"alpha e/(e+1): {right:.1%} right after five epochs")
    assert right > 0.93


async def train(conn, data, alpha, epochs) -> float:
    """Return the share of the held-out images that is right in the end."""
    options = learn.TrainerOptions(tasks=PARTS)
    async with learn.VCASGDTrainer(
        conn, digits.network(), data.train, alpha=alpha, epochs=epochs,
        local=WORK, local_steps=0, options=options,
    ) as trainer:  # fmt: skip
        async for _ in trainer:
            pass
    return digits.accuracy(trainer.model, *data.held_out)


if __name__ == "__main__":
    run(main, __doc__)
