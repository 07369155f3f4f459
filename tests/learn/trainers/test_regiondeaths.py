"""Regions and roots that die or are cut off: the others go on, and nothing counts twice."""

import asyncio
import shutil

import numpy as np
import pytest

from stoilo.core.errors import UsageError
from stoilo.learn import (
    Regions,
    Sgd,
    SimulatedBackend,
    SimulatedHost,
    SynchronousSettings,
    SynchronousTrainer,
    TrainerOptions,
)
from tests.support.points import make_model
from tests.support.regions import (
    PARTS,
    FakeNode,
    Net,
    beside,
    deal,
    make_region,
    run_regions,
    train,
)

SHARES = deal(2)
WHOLE = SynchronousSettings(4)


def then(folder):
    return folder.with_name(f"{folder.name}-then")


class Killed(Exception):
    """The process is gone, and its folder is as it was at that moment."""


class Deadly(FakeNode):
    """A node whose owner is killed once, before it gives a sum or after it has one."""

    def __init__(self, net, name, folder, when):
        super().__init__(net, name)
        self.folder, self.when, self.rounds = folder, when, set()

    def _kill(self, when, number, ids):
        self.rounds |= {number} if ids else set()
        if self.when == when and len(self.rounds) > 2 and ids:
            self.when = ""
            shutil.copytree(self.folder, then(self.folder))
            raise Killed

    def give(self, number, data, ids=()):
        self._kill("giving", number, ids)
        super().give(number, data, ids)

    def collect(self, number, ids, wait_s):
        found = super().collect(number, ids, wait_s)
        self._kill("collecting", number, ids)
        return found


def make_root(net, folder=None, node=None, settings=WHOLE, **more):
    place = Regions(node or net.node("root"), SHARES, **more)
    about = (make_model(), PARTS, settings, Sgd(0.3))
    options = TrainerOptions(folder=folder)
    return place, SynchronousTrainer(place, *about, options=options)


def make_both(net):
    return [make_region(n, net.node(n), share) for n, share in SHARES.items()]


async def run_out(place, trainer, serving):
    async with trainer:
        trained = await beside(serving, trainer.train())
    await place.end()
    return trained


async def train_undisturbed():
    net = Net()
    async with run_regions(*make_both(net)) as serving:
        return await run_out(*make_root(net), serving)


def bits(trained):
    return {n: a.tobytes() for n, a in trained.snapshot.parameters.items()}


async def test_root_goes_on_without_a_region_and_divides_by_the_samples_that_came():
    net = Net()
    place, trainer = make_root(net, wait_s=0.2)
    here = make_region("r0", net.node("r0"), SHARES["r0"])
    async with run_regions(here) as serving:
        trained = await run_out(place, trainer, serving)
    alone = SynchronousTrainer(None, make_model(), PARTS[:3], WHOLE, Sgd(0.3))
    async with alone:
        expected = await alone.train()
    for name, array in expected.snapshot.parameters.items():
        assert np.allclose(trained.snapshot.parameters[name], array, rtol=1e-9)
    assert place.missed == {"r1": 4}
    assert [one.samples for one in trained.history.updates] == [60] * 4


async def test_region_that_was_cut_off_is_in_the_sums_again_when_it_is_back():
    net, node = Net(), None
    settings = SynchronousSettings(400)
    _place, trainer = make_root(net, settings=settings, wait_s=0.2)
    node = net.node("r1")
    lost = make_region("r1", node, SHARES["r1"])
    here = make_region("r0", net.node("r0"), SHARES["r0"])
    async with run_regions(here, lost), trainer:
        samples = [(await trainer.run.step()).samples]
        node.is_down = True
        while samples[-1] == 120:
            samples.append((await trainer.run.step()).samples)
        assert samples[-1] == 60
        node.is_down = False
        while samples[-1] == 60:
            samples.append((await trainer.run.step()).samples)
    assert samples[-1] == 120


async def test_region_without_memory_finds_a_training_that_goes_on():
    net, settings = Net(), SynchronousSettings(50)
    _place, trainer = make_root(net, settings=settings, wait_s=0.05)
    here, late = make_both(net)
    async with run_regions(here), trainer:
        for _ in range(8):
            assert (await trainer.run.step()).samples == 60
        async with run_regions(late):
            while (await trainer.run.step()).samples == 60:
                pass
    assert late.method.number - trainer.run.method.first >= 8


async def test_region_killed_between_summing_and_giving_gives_the_same_sum(tmp_path):
    net, host = Net(), SimulatedBackend([SimulatedHost()])
    folder = tmp_path / "r1"
    node = Deadly(net, "r1", folder, "giving")

    def start(folder):
        options = TrainerOptions(clip=None, home_checks=0.0, folder=folder)
        return make_region("r1", node, SHARES["r1"], host, options=options)

    here = make_region("r0", net.node("r0"), SHARES["r0"])
    _place, trainer = make_root(net)
    async with run_regions(here) as serving, trainer:
        root = asyncio.create_task(trainer.train())
        with pytest.raises(Killed):
            await start(folder).serve()
        async with run_regions(start(then(folder))) as again:
            trained = await beside([*serving, *again], root)
    assert host.served == [3 * 4]  # nothing was computed again
    assert bits(trained) == bits(await train_undisturbed())


async def test_root_killed_between_collecting_and_stepping_makes_the_step_once(
    tmp_path,
):
    net, folder = Net(), tmp_path / "root"
    async with run_regions(*make_both(net)) as serving:
        node = Deadly(net, "root", folder, "collecting")
        _, trainer = make_root(net, folder, node)
        with pytest.raises(Killed):
            async with trainer:
                await beside(serving, trainer.train())
        first = trainer.run.method.first
        assert [number - first for number in net.forgotten] == [0, 1, 2]
        trained = await run_out(*make_root(net, then(folder)), serving)
        # The control: it had to be given and collected again
        assert net.given[first + 2, "r0"] > 1
        assert [number - first for number in net.forgotten] == [0, 1, 2, 2, 3]
    assert trained.snapshot.version == 4
    assert bits(trained) == bits(await train_undisturbed())


async def test_end_of_an_earlier_training_does_not_end_a_region_that_begins():
    net = Net()
    async with run_regions(*make_both(net)) as serving:
        earlier = await run_out(*make_root(net), serving)
    async with run_regions(*make_both(net)) as serving:
        later = await run_out(*make_root(net), serving)
        await asyncio.gather(*serving)  # this one's end does
    assert bits(later) == bits(earlier)


async def test_root_with_other_parts_than_a_region_ends_the_region():
    net = Net()
    odd = make_region("r0", net.node("r0"), (0, 1))
    with pytest.raises(UsageError, match="other sizes"):
        await train(net, deal(1), odd)
