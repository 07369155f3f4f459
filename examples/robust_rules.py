"""Two volunteers of ten lie about their gradients: what becomes of the model?

Nobody's answer is trusted. By default its influence is cut at three times the usual norm,
which stands flipped signs (and noise; NaN is refused), and a share is computed again at home
(`home_checks`), which finds who pushes. Here that is off, to show what bounds and rules do by
themselves: against two of ten who push in one direction at every step the bound does not help,
a rule that compares answers does. Without any of it one liar is enough.
"""

from dataclasses import replace

import digits
import numpy as np
from commandline import run

import stoilo
from stoilo import learn

HOSTS, LIARS = 10, 2
BELIEVING = learn.TrainerOptions(tasks=HOSTS, home_checks=0.0)
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


def push(answer):
    """Return what a patient liar sends: the same direction, whatever the data say."""
    ones = {n: np.full_like(a, 1e6) for n, a in answer["tensors"].items()}
    return answer | {"tensors": ones}


async def main(conn: stoilo.Connection | None) -> None:
    """Train under attack by each rule, and without any."""
    if conn is not None:
        print("the liars are simulated; --connect is not used")
    data = digits.load()
    bare = await train(data, flip, None, replace(BELIEVING, clip=None))
    print(f"no bound at all: {bare:.1%} right")
    assert bare < 0.5
    for name, rule in RULES.items():
        flipped, pushed = [await under(data, cheat, rule) for cheat in (flip, push)]
        print(f"{name}: {flipped:.1%} right; pushed in one direction: {pushed:.1%}")
        assert flipped > 0.85
        assert pushed < 0.5 if rule is None else pushed > 0.85


async def under(data, cheat, rule) -> float:
    """Return what is right under a rule, or under the default bound with None."""
    options = BELIEVING if rule is None else replace(BELIEVING, clip=None)
    return await train(data, cheat, rule, options)


async def train(data, cheat, rule, options) -> float:
    """Return the share of the held-out images that is right in the end.

    Hosts do not pause: one whose answers are cut pauses longer each time, and would lie
    less often under the default than under the other rules.
    """
    wrong = [learn.SimulatedHost(poll_s=0.0, cheat=cheat)] * LIARS
    hosts = [*wrong, *[learn.SimulatedHost(poll_s=0.0)] * (HOSTS - LIARS)]
    settings = learn.SynchronousSettings(epochs=120)
    async with learn.SynchronousTrainer(
        learn.SimulatedBackend(hosts), digits.network(), data.train,
        settings, learn.Adam(0.02), rule=rule, options=options,
    ) as trainer:  # fmt: skip
        trained = await trainer.train()
    return digits.accuracy(trained.model, *data.held_out)


if __name__ == "__main__":
    run(main, __doc__)
