"""BSP and SSP by the driver: leads under death and return, how old reads are, the time saved.

Ten parts add one to an entry of their own in each iteration, so that every snapshot says
whose iterations are in it; each entry is a key of its own on three shards.
"""

import functools
import random

import numpy as np
import pytest

from stoilo.learn.backends.simulated import SimulatedBackend, SimulatedHost, Spell
from stoilo.learn.core.data import Part
from stoilo.learn.core.models import ArrayModel
from stoilo.learn.core.orders import Reply, Snapshot
from stoilo.learn.driver.run import Run, RunSettings
from stoilo.learn.kernels.array_models import make_logistic_loss
from stoilo.learn.methods.logistic import LogisticRegression, LogisticSettings
from stoilo.learn.store.server import ParameterServer
from stoilo.learn.store.shards import LocalShard

PARTS = 10
RATE = 0.5


def counting(limit, kind=LogisticRegression, **fields):
    server = ParameterServer({f"shard{index}": LocalShard() for index in range(3)})
    settings = LogisticSettings(
        "dgd", rounds=20, limit=limit, rate=RATE, block_bytes=8, **fields
    )
    start = Snapshot(0, {"theta": np.zeros(PARTS)})
    return kind(start, [1] * PARTS, settings, server)


def count_one(order):
    """A reply whose push adds one to the part's own entry."""
    gradient = np.zeros(PARTS)
    gradient[order.part] = -1 / RATE
    return Reply(order.snapshot.version, 1, 0.0, {"theta": gradient})


def missing(method, order):
    """Return how many iterations that SSP promises are not in what an order reads."""
    clock, seen = method.clock, order.snapshot.parameters["theta"]
    own = clock.clocks[f"w{order.part}"]
    need = np.full(PARTS, max(0, own - method.settings.limit), float)
    need[order.part] = own
    alive = [index for index in range(PARTS) if f"w{index}" in clock.clocks]
    return float(np.maximum(need - seen, 0)[alive].sum())


def most_missing(method, seed=0):
    """Drive in a random order of answers; return the worst that any order lacked."""
    chance, out, worst = random.Random(seed), [], 0.0
    while not method.finished:
        fresh = method.next_orders(chance.randint(1, PARTS))
        worst = max([worst, *(missing(method, order) for order in fresh)])
        out += fresh
        order = out.pop(chance.randrange(len(out)))
        if chance.random() < 0.1:
            method.lose(order)
        else:
            method.take(order, count_one(order))
    return worst


class Lagging(LogisticRegression):
    """Reads only every few versions: the staleness that a limit forbids."""

    def _read(self):
        fresh, kept = super()._read(), getattr(self, "_snapshot", None)
        if kept is None or fresh.version - kept.version >= 60:
            return fresh
        return Snapshot(fresh.version, kept.parameters)


@pytest.mark.parametrize("limit", [0, 1, 3, 8])
def test_ten_keys_each_hold_all_iterations_that_the_limit_promises(limit):
    assert max(most_missing(counting(limit), seed) for seed in range(5)) == 0


@pytest.mark.parametrize("limit", [0, 1, 3, 8])
def test_control_a_method_that_reads_old_values_breaks_the_promise(limit):
    assert most_missing(counting(limit, Lagging)) > 0


def crowd(seed):
    """Volunteers that lose tasks, stall, die and return; the server notices in a day."""
    away = [(), (Spell(5.0, 40.0),), (Spell(15.0, 60.0), Spell(90.0, 50.0))]
    hosts = [
        SimulatedHost(samples_per_s=1.0, loss=0.08, stall=0.2, away=away[index % 3])
        for index in range(6)
    ]
    return SimulatedBackend(hosts, deadline_s=86_400.0, seed=seed)


def adding(parameters, x, _y):
    """A model whose gradient makes a part count: its only sample names its entry."""
    return 0.0, {"theta": -2.0 * x[0] + 0.0 * parameters["theta"]}


async def leads_of(limit, seed):
    """Run to the end with leases; return the leads, and how many iterations were missed."""
    method, leads = counting(limit, lease_s=30.0), []
    model = ArrayModel({"theta": np.zeros(PARTS)}, adding)
    parts = [Part(row[None], np.zeros(1)) for row in np.eye(PARTS)]
    settings = RunSettings(clip=None, in_flight=2 * PARTS, tries=100)
    async with crowd(seed) as backend:
        run = Run(
            method,
            model,
            parts,
            backend,
            settings,
            watcher=lambda *_: leads.append(method.clock.lead),
        )
        async with run:
            done = (await run.finish()).parameters["theta"]
    assert done.sum() + method.missed == 20 * PARTS
    return leads, method.missed


@pytest.mark.parametrize("limit", [0, 1, 3, 8])
async def test_lead_by_the_driver_stays_within_the_limit_under_death_and_return(limit):
    leads, missed = await leads_of(limit, seed=1)
    assert max(leads) <= limit + 1
    assert missed > 0, "nobody died: nothing was tried"


async def test_control_without_a_limit_the_lead_by_the_driver_grows():
    leads, _ = await leads_of(None, seed=1)
    assert max(leads) > 9


GAP, DECAY = 0.02, 0.01


@functools.cache
def problem():
    rng = np.random.default_rng(0)
    x = rng.standard_normal((1600, 50))
    odds = 1 / (1 + np.exp(-x @ rng.standard_normal(50)))
    return x, (rng.random(1600) < odds).astype(float)


def loss_at(theta):
    return make_logistic_loss(DECAY)({"theta": theta}, *problem())[0] / 1600


@functools.cache
def optimum():
    theta, loss = np.zeros(50), make_logistic_loss(DECAY)
    for _ in range(400):
        theta = theta - 2.0 / 1600 * loss({"theta": theta}, *problem())[1]["theta"]
    return loss_at(theta)


async def seconds_to_gap(limit, seed, **host):
    """Return the virtual time until the loss is near the least: 8 parts, 8 volunteers."""
    hosts = [SimulatedHost(samples_per_s=200.0, poll_s=0.0, **host) for _ in range(8)]
    settings = LogisticSettings("dgd", rounds=1000, limit=limit, rate=0.5 / 1600)
    x, y = problem()
    rows = np.split(np.arange(1600), 8)
    parts = [Part(x[part], y[part]) for part in rows]
    model = ArrayModel({"theta": np.zeros(50)}, make_logistic_loss(DECAY))
    method = LogisticRegression(model.first(), [200] * 8, settings)
    async with SimulatedBackend(hosts, seed=seed) as backend:
        run = Run(method, model, parts, backend, RunSettings(clip=None))
        while loss_at(method.snapshot.parameters["theta"]) > optimum() + GAP:
            await run.step()
        return backend.now()


async def speedup(seeds, **host):
    bsp = [await seconds_to_gap(0, seed, **host) for seed in range(seeds)]
    ssp = [await seconds_to_gap(3, seed, **host) for seed in range(seeds)]
    return sum(bsp) / sum(ssp)


async def test_limit_of_3_by_the_driver_is_half_as_fast_again_as_bsp_under_delays():
    assert await speedup(2, stall=0.1, stall_times=6.0) >= 1.5


async def test_control_without_delays_a_limit_saves_nothing():
    assert 0.9 <= await speedup(1) <= 1.1
