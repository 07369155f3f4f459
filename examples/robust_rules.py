"""Two volunteers of ten lie about their gradients: what becomes of the model?

Nobody's answer is trusted. By default its influence is cut at three times the usual norm;
rules that need no norm are there to be chosen. Without any of it one liar is enough.
"""

from dataclasses import replace

import digits
from commandline import run

import stoilo
from stoilo import learn

HOSTS, LIARS = 10, 2
RULES = {
    "cut at 3 × the usual norm": None,
    "median of each coordinate": learn.CoordinateMedian(),
    "mean without a fifth at each end": learn.TrimmedMean(0.2),
    "Krum": learn.Krum(wrong=LIARS),
    "centred clipping": learn.CentredClipping(),
}


def flip(answer):
    """Return what a liar sends: ten times the gradient, in the wrong direction."""
    return answer | {"tensors": {n: -10.0 * a for n, a in answer["tensors"].items()}}


async def main(conn: stoilo.Connection | None) -> None:
    """Train under attack by each rule, and without any."""
    if conn is not None:
        print("the liars are simulated; --connect is not used")
    data = digits.load()
    bare = await train(data, None, learn.TrainerOptions(tasks=HOSTS, clip=None))
    print(f"no bound at all: {bare:.1%} right")
    assert bare < 0.5
    for name, rule in RULES.items():
        options = learn.TrainerOptions(tasks=HOSTS)
        if rule is not None:
            options = replace(options, clip=None)
        right = await train(data, rule, options)
        print(f"{name}: {right:.1%} right")
        assert right > 0.85


async def train(data, rule, options) -> float:
    """Return the share of the held-out images that is right in the end."""
    liars = [learn.SimulatedHost(cheat=flip)] * LIARS
    hosts = [*liars, *[learn.SimulatedHost()] * (HOSTS - LIARS)]
    settings = learn.SynchronousSettings(epochs=120)
    async with learn.SynchronousTrainer(
        learn.SimulatedBackend(hosts), digits.network(), data.train,
        settings, learn.Adam(0.02), rule=rule, options=options,
    ) as trainer:  # fmt: skip
        trained = await trainer.train()
    return digits.accuracy(trained.model, *data.held_out)


if __name__ == "__main__":
    run(main, __doc__)
