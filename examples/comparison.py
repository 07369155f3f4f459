"""Downpour, Downpour with Adagrad and Sandblaster against one computer, slow and fast.

The same net and data, everybody on a virtual clock: sixteen volunteers who poll between
tasks, one such computer without polls, and one that is ten times as fast. What is compared
is the accuracy on held-out images over the seconds that pass.
"""

from collections.abc import Iterator
from dataclasses import dataclass

import digits
from commandline import run

import stoilo
from stoilo import learn

HOSTS = [learn.SimulatedHost(samples_per_s=10.0, poll_s=1.0)] * 16
ONE = [learn.SimulatedHost(samples_per_s=10.0, poll_s=0.0)]
FAST = [learn.SimulatedHost(samples_per_s=100.0, poll_s=0.0)]
GOAL = 0.93


@dataclass(frozen=True)
class Point:
    """A place of a curve: seconds since the beginning, share of images that is right."""

    seconds: float
    accuracy: float


def downpour(data, hosts, replicas, optimizer, push) -> learn.Trainer:
    """Return a trainer of so many replicas, each pushing after so many local steps."""
    place = learn.SimulatedBackend(hosts)
    settings = learn.DownpourSettings(passes=8, batch=10, push=push, rate=0.05)
    options = learn.TrainerOptions(tasks=replicas)
    return learn.DownpourTrainer(
        place,
        digits.network(),
        data.train,
        settings,
        optimizer=optimizer,
        options=options,
    )


def sandblaster(data, place) -> learn.Trainer:
    """Return a trainer whose every step takes a pass over all data."""
    settings = learn.SandblasterSettings(rules=learn.Rules(iterations=30))
    options = learn.TrainerOptions(tasks=32, clip=None)
    return learn.SandblasterTrainer(
        place, digits.network(), data.train, settings, options=options
    )


def contestants(data) -> Iterator[tuple[str, learn.Trainer]]:
    """Yield each method's name and trainer, on its own computers, at its best rate."""
    yield "one computer", downpour(data, ONE, 1, learn.Sgd(0.5), push=1)
    yield "one fast computer", downpour(data, FAST, 1, learn.Sgd(0.5), push=1)
    yield "Downpour", downpour(data, HOSTS, 16, learn.Sgd(0.0125), push=5)
    yield "Downpour, Adagrad", downpour(data, HOSTS, 16, learn.Adagrad(0.02), push=5)
    yield "Sandblaster", sandblaster(data, learn.SimulatedBackend(HOSTS))


async def curve(trainer, data) -> list[Point]:
    """Train to the goal or the end and return the accuracy at every tenth answer."""
    points = [Point(0.0, 0.0)]
    async with trainer:
        count = 0
        async for update in trainer:
            count += 1
            if count % 10 == 0:
                right = digits.accuracy(update.snapshot.parameters, *data.held_out)
                points.append(Point(trainer.run.backend.now(), right))
    return points


def reached(points: list[Point], goal: float = GOAL) -> float:
    """Return when the accuracy was at the goal first, s; infinity when never."""
    return min((p.seconds for p in points if p.accuracy >= goal), default=float("inf"))


async def main(conn: stoilo.Connection | None) -> None:
    """Print when each method reaches the goal; clocks of volunteers are not compared."""
    if conn is not None:
        print("the comparison needs the virtual clock; --connect is not used")
    data = digits.load()
    found = {name: await curve(t, data) for name, t in contestants(data)}
    for name, points in found.items():
        best = max(p.accuracy for p in points)
        print(f"{name:18} {GOAL:.0%} after {reached(points):6.0f} s, best {best:.1%}")
    times = {name: reached(points) for name, points in found.items()}
    assert times["Downpour, Adagrad"] < times["one computer"] < times["Downpour"]


if __name__ == "__main__":
    run(main, __doc__)
