"""Regions over real nodes: the bits of one trainer, also when a region's node is killed."""

import signal

import pytest

from stoilo.learn import (
    NodeTraffic,
    Regions,
    Sgd,
    SimulatedBackend,
    SimulatedHost,
    SynchronousSettings,
    SynchronousTrainer,
    fit,
)
from tests.support.points import make_model
from tests.support.regions import (
    PARTS,
    WISHES,
    Net,
    beside,
    deal,
    make_region,
    run_regions,
    train,
)

pytestmark = pytest.mark.slow
SHARES = dict(zip(("n1", "n2", "n3"), deal(3).values(), strict=True))


def make_regions(field):
    return [make_one(field, name) for name in SHARES]


def make_one(field, name):
    node = NodeTraffic(field.nodes.connection(name))
    return make_region(name, node, SHARES[name], hosts(), again_s=2.0)


def hosts():
    def lie(answer):
        return {**answer, "tensors": {**answer["tensors"], "w": "nothing"}}

    return SimulatedBackend([SimulatedHost(cheat=lie), SimulatedHost()], tries=1000)


async def test_three_regions_train_as_one_trainer_does_to_the_bit(field):
    field.begin(3)
    root = Regions(NodeTraffic(field.nodes.connection("root")), SHARES, wait_s=20.0)
    async with run_regions(*make_regions(field)) as serving:
        trained = await beside(
            serving, fit("dpbgd", make_model(), PARTS, root, **WISHES)
        )
        await root.end()
        for one in serving:
            await one
    net, share = Net(), deal(1)
    region = make_region("r0", net.node("r0"), share["r0"])
    exact = await train(net, share, region)
    for name, array in exact.snapshot.parameters.items():
        assert array.tobytes() == trained.snapshot.parameters[name].tobytes()
    plain = await fit("dpbgd", make_model(), PARTS, **WISHES)
    loss = plain.epochs[-1].average_loss
    assert trained.epochs[-1].average_loss == pytest.approx(loss, rel=0.05)


async def test_region_whose_node_is_killed_is_missed_and_taken_in_again(field):
    coordinator = field.begin(3)
    place = NodeTraffic(field.nodes.connection("root"))
    root = Regions(place, SHARES, wait_s=1.0)
    settings = SynchronousSettings(1000)
    trainer = SynchronousTrainer(root, make_model(), PARTS, settings, Sgd(0.3))
    async with run_regions(*make_regions(field)), trainer:
        samples = [(await trainer.run.step()).samples]
        field.nodes.signal("n2", signal.SIGKILL)
        while samples[-1] == 120:
            samples.append((await trainer.run.step()).samples)
        field.nodes.start("n2", coordinator)
        while samples[-1] == 80:
            samples.append((await trainer.run.step()).samples)
    assert {*samples} == {120, 80}
    assert samples[-1] == 120
    assert {*root.missed} == {"n2"}
