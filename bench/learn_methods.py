"""What asynchrony buys, on simulated volunteers: their kernels and the driver are real.

Only time is played (`SimulatedBackend`), so these rows are the same on a busy machine, and
their seconds are virtual. A host does a task in a second; one task in ten takes six times as
long (transient delays), or one host always takes three times as long (a permanent one).
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from functools import cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bench.digits import Reached, make_model, make_parts, train_until
from bench.rows import Row
from stoilo.learn import (
    Adagrad,
    DownpourSettings,
    DownpourTrainer,
    LargeMinibatchSettings,
    LargeMinibatchTrainer,
    LogisticSettings,
    LogisticTrainer,
    Part,
    SimulatedBackend,
    SimulatedHost,
    TrainerOptions,
    split,
)
from stoilo.learn.driver.transport import TransportName
from stoilo.learn.kernels.array_models import make_logistic_loss

WORKERS, SAMPLES, WIDTH = 8, 1600, 50
RATE, DECAY, GAP = 0.3 / SAMPLES, 0.01, 0.02
LIMITS = {"SSP, limit 1": 1, "SSP, limit 3": 3, "SSP, limit 8": 8, "ASP": None}
ACCURACY = 0.95
Hosts = Callable[[], list[SimulatedHost]]


def hosts(stall: float = 0.0) -> list[SimulatedHost]:
    """Return hosts that take a second for a worker's samples and ask for more at once."""
    one = SimulatedHost(SAMPLES / WORKERS, poll_s=0.0, stall=stall)
    return [one] * WORKERS


def transient() -> list[SimulatedHost]:
    """One task in ten takes six times as long."""
    return hosts(stall=0.1)


def permanent() -> list[SimulatedHost]:
    """One host takes three times as long."""
    slow = SimulatedHost(SAMPLES / WORKERS / 3, poll_s=0.0)
    return [slow, *hosts()[1:]]


@cache
def regression() -> tuple[tuple[Part, ...], float]:
    """Return a logistic regression's parts, and the loss that is near its optimum."""
    chooser = np.random.default_rng(0)
    x = chooser.standard_normal((SAMPLES, WIDTH))
    odds = 1 / (1 + np.exp(-x @ chooser.standard_normal(WIDTH)))
    y = (chooser.random(SAMPLES) < odds).astype(float)
    loss: Callable[..., Any] = make_logistic_loss(DECAY)
    theta: NDArray[Any] = np.zeros(WIDTH)
    for _ in range(3000):
        theta = theta - 2.0 / SAMPLES * loss({"theta": theta}, x, y)[1]["theta"]
    least = loss({"theta": theta}, x, y)[0] / SAMPLES
    return tuple(split(x, y, WORKERS)), least + GAP


async def time_to_loss(limit: int | None, made: Hosts, seed: int) -> float:
    """Return the virtual seconds until the whole data's loss is near its optimum."""
    parts, target = regression()
    backend = SimulatedBackend(made(), seed=seed)
    settings = LogisticSettings("dgd", rounds=2000, limit=limit, rate=RATE)
    loss: Callable[..., Any] = make_logistic_loss(DECAY)
    async with LogisticTrainer(backend, list(parts), settings, decay=DECAY) as trainer:
        async for update in trainer:
            at = update.snapshot.parameters
            if sum(loss(at, p.x, p.y)[0] for p in parts) / SAMPLES < target:
                return backend.now()
    raise AssertionError("the loss was not reached")


def measure_limits(seeds: Sequence[int]) -> list[Row]:
    """Return a row for each limit under each kind of delay, against BSP."""
    rows = []
    for kind, made in (("transient", transient), ("permanent", permanent)):

        def total(limit: int | None, made: Hosts = made) -> float:
            times = [asyncio.run(time_to_loss(limit, made, s)) for s in seeds]
            return sum(times) / len(times)

        bsp = total(0)
        rows += [
            _row(f"{name}, {kind} delays: time to loss", total(limit), "BSP", bsp)
            for name, limit in LIMITS.items()
        ]
    return rows


async def reach(replicas: int, push: int = 1) -> Reached:
    """Return what Downpour takes on so many hosts; one host is serial Adagrad."""
    backend = SimulatedBackend([SimulatedHost(10.0, poll_s=0.0)] * replicas)
    settings = DownpourSettings(passes=60, batch=10, push=push)
    async with DownpourTrainer(
        backend, make_model(), make_parts(replicas), settings, optimizer=Adagrad(0.05)
    ) as trainer:
        return await train_until(trainer, ACCURACY)


def measure_downpour(replicas: Sequence[int]) -> list[Row]:
    """Return a row for each number of replicas, against one alone."""
    serial = asyncio.run(reach(1)).backend_s
    return [
        _row(
            f"Downpour, {many} replicas: time to {ACCURACY:.0%} of the digits",
            asyncio.run(reach(many)).backend_s,
            "serial Adagrad",
            serial,
        )
        for many in replicas
    ]


async def travel(transport: TransportName, seed: int) -> tuple[int, int]:
    """Return the answers and their bytes that eight parts need, large minibatches."""
    backend = SimulatedBackend([SimulatedHost(poll_s=0.0)] * WORKERS)
    options = TrainerOptions(transport=transport, seed=seed)
    settings = LargeMinibatchSettings(200, block=25, rate=0.1, seed=seed)
    async with LargeMinibatchTrainer(
        backend, make_model(), make_parts(WORKERS), settings, options=options
    ) as trainer:
        found = await train_until(trainer, ACCURACY)
        return found.answers, trainer.run.tally.received_bytes


def measure_codecs(seeds: Sequence[int]) -> list[Row]:
    """Return what a codec's noise costs in answers, and saves in bytes, to an accuracy."""

    def mean(transport: TransportName) -> tuple[float, float]:
        found = [asyncio.run(travel(transport, seed)) for seed in seeds]
        answers, sizes = zip(*found, strict=True)
        return sum(answers) / len(found), sum(sizes) / len(found)

    (answers, size), title = mean("raw"), f"{ACCURACY:.0%} of the digits"
    rows = []
    names: tuple[TransportName, ...] = ("compressed", "ternary")
    for name in names:
        more, less = mean(name)
        rows += [
            Row(f"gradients, {name}: answers to {title}", more, "answers", "raw",
                answers, more / answers, "of raw"),
            Row(f"gradients, {name}: bytes to {title}", less / 1e6, "MB", "raw",
                size / 1e6, size / less, "times smaller"),
        ]  # fmt: skip
    return rows


def measure(
    seeds: Sequence[int] = (0, 1, 2), replicas: Sequence[int] = (4, 8, 16)
) -> list[Row]:
    """Return the rows of the parameter server's limits, of Downpour, of codecs."""
    return [
        *measure_limits(seeds),
        *measure_downpour(replicas),
        *measure_codecs(seeds),
    ]


def _row(name: str, ours: float, peer_name: str, peer: float) -> Row:
    return Row(name, ours, "virtual s", peer_name, peer, peer / ours, "times faster")
