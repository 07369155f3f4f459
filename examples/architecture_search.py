"""A search for an architecture by evolution: each candidate's training is a task.

Aging evolution (Real et al. 2019): some candidates are always out; when one's score comes
back, it joins the population, the oldest leaves, and the best of a few drawn at random has
a child with one change. Nobody waits for the slowest, and an error is a bad score.
"""

import asyncio
import random
from collections import deque
from collections.abc import Callable
from dataclasses import asdict, dataclass, replace
from itertools import pairwise

import numpy as np
from commandline import run

import stoilo

POPULATION, DRAWN, TASKS, OUT = 8, 3, 40, 4
TURNS, STEPS = 1.75, 200  # of each spiral; of a candidate's training
WIDTHS, BENDS, RATES = (2, 4, 8, 16, 32), ("tanh", "relu", "sine"), (0.003, 0.01, 0.03)


@dataclass(frozen=True)
class Architecture:
    """A candidate: widths of the hidden layers, what bends between them, step size."""

    widths: tuple[int, ...]
    bend: str
    rate: float


@dataclass(frozen=True)
class Scored:
    """A candidate and the share of points that it classified rightly."""

    architecture: Architecture
    score: float


def spirals(points, turns, seed):
    """Return points on two spirals, one inside the other, and which one each is on."""
    rng = np.random.default_rng(seed)
    side = np.arange(points) % 2
    along = np.sqrt(rng.uniform(0.02, 1.0, points))
    angle = 2.0 * np.pi * turns * along + np.pi * side
    place = along[:, None] * np.column_stack([np.cos(angle), np.sin(angle)])
    return place + rng.normal(0.0, 0.02, place.shape), side.astype(float)


BEND = {
    "tanh": (np.tanh, lambda z: 1.0 - np.tanh(z) ** 2),
    "relu": (lambda z: np.maximum(z, 0.0), lambda z: (z > 0.0).astype(float)),
    "sine": (np.sin, np.cos),
}


def score(call):
    """Train a candidate and return the share of other points that it gets right."""
    bend, slope = BEND[call["bend"]]
    x, y = spirals(300, call["turns"], seed=1)
    sizes = [2, *call["widths"], 1]
    rng = np.random.default_rng(call["seed"])
    w = [rng.normal(0.0, a**-0.5, (a + 1, b)) for a, b in pairwise(sizes)]
    mean, square = [0.0] * len(w), [0.0] * len(w)
    for step in range(1, call["steps"] + 1):
        for layer, found in enumerate(differentiate(w, x, y, bend, slope)):
            mean[layer] = 0.9 * mean[layer] + 0.1 * found
            square[layer] = 0.999 * square[layer] + 0.001 * found**2
            size = np.sqrt(square[layer] / (1.0 - 0.999**step)) + 1e-8
            w[layer] = w[layer] - call["rate"] * mean[layer] / (1.0 - 0.9**step) / size
    x, y = spirals(300, call["turns"], seed=2)
    return float(((forward(w, x, bend)[-1][:, 0] > 0.0) == (y > 0.5)).mean())


def forward(w, x, bend):
    """Return what goes into each layer, with a one for its bias, and the last's output."""
    one = np.ones((len(x), 1))
    found = [np.hstack([x, one])]
    for layer in w[:-1]:
        found.append(np.hstack([bend(found[-1] @ layer), one]))
    return [*found, found[-1] @ w[-1]]


def differentiate(w, x, y, bend, slope):
    """Return the gradient of the mean cross-entropy for each layer's weights."""
    *inputs, scores = forward(w, x, bend)
    back = (1.0 / (1.0 + np.exp(-scores[:, 0])) - y)[:, None] / len(y)
    gradients = []
    for layer in reversed(range(len(w))):
        gradients.append(inputs[layer].T @ back)
        if layer:
            back = (back @ w[layer][:-1].T) * slope(inputs[layer - 1] @ w[layer - 1])
    return gradients[::-1]


def at_random(rng: random.Random) -> Architecture:
    """Return a candidate of one layer."""
    return Architecture((rng.choice(WIDTHS),), rng.choice(BENDS), rng.choice(RATES))


def mutate(parent: Architecture, rng: random.Random) -> Architecture:
    """Return a child with one change: a layer more, fewer or other, a bend, a rate."""
    at = rng.randrange(len(parent.widths))
    match rng.randrange(5):
        case 0 if len(parent.widths) < 3:
            return replace(parent, widths=(*parent.widths, rng.choice(WIDTHS)))
        case 1 if len(parent.widths) > 1:
            return replace(parent, widths=parent.widths[:at] + parent.widths[at + 1 :])
        case 2:
            return replace(parent, bend=rng.choice(BENDS))
        case 3:
            return replace(parent, rate=rng.choice(RATES))
    changed = (rng.choice(WIDTHS),)
    return replace(
        parent, widths=parent.widths[:at] + changed + parent.widths[at + 1 :]
    )


def breed(population: deque[Scored], rng: random.Random) -> Architecture:
    """Return a child of the best of a few; any candidate while the population grows."""
    if len(population) < POPULATION:
        return at_random(rng)
    drawn = rng.sample(list(population), DRAWN)
    return mutate(max(drawn, key=lambda one: one.score).architecture, rng)


Breed = Callable[[deque[Scored], random.Random], Architecture]


async def search(
    conn, *, tasks: int = TASKS, steps: int = STEPS, breed: Breed = breed
) -> list[Scored]:
    """Return every candidate in the order in which their scores came."""
    rng = random.Random(0)
    population: deque[Scored] = deque(maxlen=POPULATION)
    seen: list[Scored] = []
    out: set[asyncio.Task[Scored]] = set()
    while len(seen) < tasks:
        while len(out) < OUT and len(seen) + len(out) < tasks:
            candidate = breed(population, rng)
            out.add(asyncio.create_task(evaluate(conn, candidate, steps)))
        done, out = await asyncio.wait(out, return_when=asyncio.FIRST_COMPLETED)
        scored = [task.result() for task in done]
        population.extend(scored)
        seen.extend(scored)
    return seen


def call_of(candidate: Architecture, steps: int = STEPS) -> dict[str, object]:
    """Return the arguments of the task that scores a candidate."""
    return {**asdict(candidate), "seed": 0, "steps": steps, "turns": TURNS}


async def evaluate(conn, candidate: Architecture, steps: int) -> Scored:
    """Score a candidate on a volunteer, or here without a project."""
    call = call_of(candidate, steps)
    if conn is None:
        return Scored(candidate, await asyncio.to_thread(score, call))
    answer = await conn.create_task(score, call).result()
    return Scored(candidate, answer if isinstance(answer, float) else 0.0)


async def main(conn: stoilo.Connection | None) -> None:
    """Search, and compare the first candidates with the last ones."""
    seen = await search(conn)
    first, last = seen[:POPULATION], seen[-POPULATION:]
    for name, some in (("first", first), ("last", last)):
        scores = sorted(one.score for one in some)
        print(f"{name} {POPULATION}: best {scores[-1]:.1%}, median {scores[4]:.1%}")
    best = max(seen, key=lambda one: one.score)
    print("best:", best.architecture)
    gain = np.mean([s.score for s in last]) - np.mean([s.score for s in first])
    print(f"{gain:+.1%} on average")
    assert gain > 0.08


if __name__ == "__main__":
    run(main, __doc__)
