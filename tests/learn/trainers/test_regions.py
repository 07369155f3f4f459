"""A training in regions: the bits of one trainer, whatever the regions do or lack."""

import asyncio

import numpy as np
import pytest

from stoilo.core.errors import UsageError
from stoilo.learn import (
    Adam,
    CentredClipping,
    CoordinateMedian,
    DPBGDTrainer,
    FedAvgTrainer,
    FederatedSettings,
    Krum,
    LocalWork,
    Near,
    Part,
    Privacy,
    Regions,
    SimulatedBackend,
    SimulatedHost,
    SynchronousSettings,
    SynchronousTrainer,
    TrainerOptions,
    TrimmedMean,
    fit,
    parallel,
)
from tests.support.points import make_model
from tests.support.regions import PARTS, Net, deal, make_region, train


def bits(trained):
    return {n: a.tobytes() for n, a in trained.snapshot.parameters.items()}


def same(one, other):
    return all(
        np.allclose(a, other.snapshot.parameters[n], rtol=1e-6, atol=1e-9)
        for n, a in one.snapshot.parameters.items()
    )


async def train_in(count, place=lambda: None, **wishes):
    net, shares = Net(), deal(count)
    regions = [make_region(n, net.node(n), s, place()) for n, s in shares.items()]
    return await train(net, shares, *regions, **wishes)


async def train_alone(**wishes):
    given = {"epochs": 4, "block": 7, "rate": 0.3, **wishes}
    return await fit(given.pop("method", "dpbgd"), make_model(), PARTS, **given)


def two_hosts():
    return SimulatedBackend([SimulatedHost(loss=0.1), SimulatedHost()])


@pytest.mark.parametrize("place", [lambda: None, two_hosts])
async def test_any_number_of_regions_gives_the_same_bits_and_the_plain_loss(place):
    one, two, three = [await train_in(count, place) for count in (1, 2, 3)]
    assert bits(one) == bits(two) == bits(three)
    plain = await train_alone()
    assert same(plain, three)
    ours = [epoch.average_loss for epoch in three.epochs]
    assert ours == pytest.approx([e.average_loss for e in plain.epochs], rel=1e-6)
    assert three.snapshot.version == plain.snapshot.version
    assert ours[-1] < ours[0] / 2
