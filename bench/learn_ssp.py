"""What a limit buys through the real server: SSP's time to a loss, against BSP's.

Eight parts of a logistic regression, eight volunteers with jails, gate, log and signatures
in between. Volunteers do not compute for long here, for they share one machine's cores: the
task *sleeps* in its jail for as long as computing would take, one iteration in ten six times
longer. The table of those times is made from the seed and is the same for both limits: a
task reads from the parameters which iteration of its part it is. For each seed both limits
train at the same time, each in a deployment of its own, so that what else the machine does
slows both; two seeds at a time. What the server takes for a task is in both times, and so
is a volunteer's queue: it fetches one task ahead, which then waits behind one that stalls.
"""

from __future__ import annotations

import asyncio
import tempfile
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

import stoilo
from bench.learn_methods import DECAY, SAMPLES, WIDTH, WORKERS, regression
from bench.rows import Row
from stoilo.client.session import Journal
from stoilo.learn import ArrayModel, Part, Sgd, SspSettings, SspTrainer, TrainerOptions
from stoilo.learn.kernels.array_models import make_logistic_loss
from stoilo.testing.deployment import Deployment

RATE = 1.0  # of the mean loss: BSP takes 13 rounds
LIMIT = 3
BASE_S = 3.0  # an iteration that does not stall
STALL, TIMES = 0.1, 6.0  # chance, and how much longer
ROUNDS = 100
SEEDS = range(5)
AT_ONCE = 2  # seeds
MOST_S = 600.0
WARM_S = 2.0  # of a task, so that each volunteer gets one
Loss = Callable[[Any, Any, Any], tuple[float, dict[str, Any]]]


def make_sleeping_loss(
    decay: float, delays: Sequence[Sequence[float]], count: float, whole: int
) -> Loss:
    """Return the regression's loss that takes its time: ``delays[part][iteration]``, s.

    A sample's last number is its part; ``done`` holds the parts' iterations, and the
    gradient `count` there is one iteration more. The trainer computes a few samples at
    home, which takes no time: only `whole` samples and more do.
    """

    def loss(parameters: Any, x: Any, y: Any) -> tuple[float, dict[str, Any]]:  # noqa: ANN401 - arrays, as in a researcher's own file
        part, given = int(x[0, -1]), x[:, :-1]
        done = np.zeros(len(delays))
        done[part] = count
        if len(y) >= whole:
            time.sleep(delays[part][round(float(parameters["done"][part]))])
        theta = parameters["theta"]
        z = given @ theta
        odds = 1.0 / (1.0 + np.exp(-z))
        penalty = decay * len(y) * float(theta @ theta)
        total = float(np.sum(np.logaddexp(0.0, z) - y * z)) + penalty
        slope = given.T @ (odds - y) + 2.0 * decay * len(y) * theta
        return total, {"theta": slope, "done": done}

    return loss


def draw_delays(seed: int, base_s: float) -> list[list[float]]:
    """Return how long each iteration of each part takes, s."""
    stalls = np.random.default_rng(seed).random((WORKERS, ROUNDS)) < STALL
    delays: list[list[float]] = np.where(stalls, TIMES * base_s, base_s).tolist()
    return delays


@dataclass(frozen=True, slots=True)
class Sizes:
    """How much is trained, and by whom."""

    base_s: float = BASE_S
    volunteers: int = WORKERS
    slack: float = 0.0  # how far the loss may be from where it should come


@dataclass(frozen=True, slots=True)
class Reached:
    """A training that came to the loss."""

    seconds: float  # from the first order on
    answers: int  # that counted
    iterations: int  # of the slowest part
    lead: int  # most iterations that two parts were apart


async def train(
    conn: stoilo.Connection, limit: int | None, seed: int, sizes: Sizes
) -> Reached:
    """Train until the whole data's loss is near its optimum."""
    parts, target = regression()
    make: Callable[[float], Loss] = make_logistic_loss
    loss = make(DECAY)
    wide = [
        Part(np.column_stack([p.x, np.full(len(p.x), number)]), p.y)
        for number, p in enumerate(parts)
    ]
    first = {"theta": np.zeros(WIDTH), "done": np.zeros(WORKERS)}
    delays, whole = draw_delays(seed, sizes.base_s), min(len(p.x) for p in parts)
    sleeping = make_sleeping_loss(DECAY, delays, -SAMPLES / RATE, whole)
    settings = SspSettings(ROUNDS, limit)
    options = TrainerOptions(clip=None)  # `done` is no gradient
    async with SspTrainer(
        conn, ArrayModel(first, sleeping), wide, settings,
        optimizer=Sgd(RATE), options=options,
    ) as trainer:  # fmt: skip
        clock: Any = trainer.run.method
        began, lead = time.monotonic(), 0
        async for update in trainer:
            at = {"theta": update.snapshot.parameters["theta"]}
            lead = max(lead, clock.clock.lead)
            if (
                sum(loss(at, p.x, p.y)[0] for p in parts) / SAMPLES
                < target + sizes.slack
            ):
                took = time.monotonic() - began
                answers = len(trainer.run.history.updates)
                return Reached(took, answers, clock.clock.time, lead)
    raise AssertionError("the loss was not reached")


def deploy_and_train(limit: int | None, seed: int, sizes: Sizes) -> Reached:
    """Train in a deployment of its own, after its volunteers have begun to work."""

    async def connect_and_train(address: str, journal: Journal) -> Reached:
        async with stoilo.connect(address, journal=journal) as conn:
            # Each volunteer has a zygote then, and has computed once.
            await warm_up(conn, sizes)
            return await asyncio.wait_for(train(conn, limit, seed, sizes), MOST_S)

    with tempfile.TemporaryDirectory() as folder:
        place = Path(folder)
        with Deployment(place / "data", volunteers=sizes.volunteers) as running:
            assert running.line is not None
            journal = Journal(place / "journal")
            return asyncio.run(connect_and_train(running.line.connection, journal))


async def warm_up(conn: stoilo.Connection, sizes: Sizes) -> None:
    """Have each volunteer compute at least once: as many tasks as there are, each a while."""
    parts, _ = regression()
    wide = [
        Part(np.column_stack([p.x[:2], np.full(2, number)]), p.y[:2])
        for number, p in enumerate(parts[: sizes.volunteers])
    ]
    first = {"theta": np.zeros(WIDTH), "done": np.zeros(WORKERS)}
    model = ArrayModel(
        first, make_sleeping_loss(DECAY, [[WARM_S] * 3] * WORKERS, 0.0, 2)
    )
    async with SspTrainer(conn, model, wide, SspSettings(2, 0)) as trainer:
        await trainer.train()


def reach_both(seed: int, sizes: Sizes) -> tuple[Reached, Reached]:
    """Return what BSP and SSP take, measured side by side."""
    job = partial(deploy_and_train, seed=seed, sizes=sizes)
    with ThreadPoolExecutor(2) as pool:
        bsp, ssp = pool.map(job, (0, LIMIT))
    return bsp, ssp


def measure(seeds: Sequence[int] = SEEDS, sizes: Sizes = Sizes()) -> list[Row]:
    """Return a row for each seed, and one for all."""
    with ThreadPoolExecutor(AT_ONCE) as pool:
        pairs = list(pool.map(partial(reach_both, sizes=sizes), seeds))
    rows = [
        _row(f"SSP, limit {LIMIT}, seed {seed}", ssp.seconds, bsp.seconds)
        for seed, (bsp, ssp) in zip(seeds, pairs, strict=True)
    ]
    bsp_s, ssp_s = (float(np.mean([one[i].seconds for one in pairs])) for i in (0, 1))
    return [
        *rows,
        _row(f"SSP, limit {LIMIT}, mean of {len(pairs)}", ssp_s, bsp_s, least=1.9),
    ]


def _row(name: str, ssp: float, bsp: float, least: float | None = None) -> Row:
    times = bsp / ssp
    target, met = ("", None) if least is None else (f"≥ {least}", times >= least)
    title = f"{name}: time to loss through the server"
    return Row(title, ssp, "s", "BSP", bsp, times, "times faster", target, met)
