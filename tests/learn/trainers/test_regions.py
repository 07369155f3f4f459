"""A training in regions: the bits of one trainer, whatever the regions do or lack."""

import numpy as np
import pytest
import torch
from torch import nn

from stoilo.core.errors import UsageError
from stoilo.learn import (
    Adam,
    CentredClipping,
    CoordinateMedian,
    DPBGDOptions,
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
    TrainerOptions(clip=None)
    usual = {} if "method" in wishes else WISHES
    given = {**usual, "options": TrainerOptions(clip=None), **wishes}
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


@pytest.mark.parametrize(
    "wishes",
    [
        {"block": 0, "optimizer": Adam(0.05)},
        {"method": "sync", "batch": 5, "rate": 0.02},
        {"block": 20, "schedule": lambda update: 0.5**update},
    ],
)
async def test_every_step_is_the_plain_trainers(wishes):
    assert same(await train_alone(**wishes), await train_in(3, **wishes))


class Cheat:
    """Sends something else each time, and never what it should."""

    def __init__(self, *changes):
        self.changes, self.count = changes, 0

    def __call__(self, answer):
        self.count += 1
        return self.changes[self.count % len(self.changes)](answer)


def with_w(change):
    return lambda a: {**a, "tensors": {**a["tensors"], "w": change(a["tensors"]["w"])}}


NONSENSE = (
    with_w(lambda w: np.full_like(w, np.nan)),
    with_w(lambda w: w[:2]),
    with_w(lambda w: w.astype("int64")),
    lambda a: {**a, "samples": 10**9},
    lambda a: {**a, "version": 77},
    lambda _: "no answer",
)


def one_cheat(*changes):
    hosts = [SimulatedHost(cheat=Cheat(*changes)), SimulatedHost()]
    return SimulatedBackend(hosts, tries=1000)


async def test_nonsense_is_refused_in_its_region_and_the_sum_has_the_honest_bits():
    net, shares = Net(), deal(2)
    place = one_cheat(*NONSENSE)
    regions = [
        make_region("r0", net.node("r0"), shares["r0"], place),
        make_region("r1", net.node("r1"), shares["r1"], two_hosts()),
    ]
    trained = await train(net, shares, *regions)
    assert place.faults[0] > 3
    assert place.faults[1] == 0
    assert bits(trained) == bits(await train_in(2))


async def test_huge_gradient_counts_at_the_bound_and_its_host_is_named():
    net, shares = Net(), deal(2)
    place = one_cheat(with_w(lambda w: w * 1e200))
    options = TrainerOptions(home_checks=0.0)  # with the usual bound on each answer
    regions = [
        make_region("r0", net.node("r0"), shares["r0"], place, options=options),
        make_region("r1", net.node("r1"), shares["r1"], two_hosts(), options=options),
    ]
    trained = await train(net, shares, *regions)
    assert place.faults[0] > 0
    assert regions[0].run.tally.shortened > 0
    assert regions[1].run.tally.shortened == 0
    assert trained.epochs[-1].average_loss < trained.epochs[0].average_loss / 2


async def test_without_the_usual_bound_the_sums_own_bound_holds():
    net, shares = Net(), deal(1)
    place = SimulatedBackend([SimulatedHost(cheat=with_w(lambda w: w * 1e200))])
    region = make_region("r0", net.node("r0"), shares["r0"], place)
    trained = await train(net, shares, region, epochs=1, block=0, rate=1.0)
    moved = trained.snapshot.parameters["w"]
    assert 0.0 < np.linalg.norm(moved) < 100.0  # Adam's steps, of finite numbers


async def test_answer_computed_again_at_the_region_is_refused_there():
    net, shares = Net(), deal(1)
    place = one_cheat(with_w(lambda w: -w))
    options = TrainerOptions(clip=None, home_checks=1.0)
    region = make_region("r0", net.node("r0"), shares["r0"], place, options=options)
    trained = await train(net, shares, region)
    assert region.run.tally.refused > 0
    assert bits(trained) == bits(await train_in(1))


@pytest.mark.parametrize("rule", [CoordinateMedian(), None])
async def test_robust_rule_within_a_region_stands_what_it_stands_alone(rule):
    net, shares = Net(), deal(1)
    hosts = [SimulatedHost(cheat=with_w(lambda w: w * -500)), *[SimulatedHost()] * 3]
    place = SimulatedBackend(hosts)
    region = make_region("r0", net.node("r0"), shares["r0"], place, rule=rule)
    trained = await train(net, shares, region)
    learnt = trained.epochs[-1].average_loss < trained.epochs[0].average_loss
    assert learnt == (rule is not None)


REFUSED = {
    "Near": {"rule": Near()},
    "CoordinateMedian": {"rule": CoordinateMedian()},
    "TrimmedMean": {"rule": TrimmedMean()},
    "Krum": {"rule": Krum()},
    "CentredClipping": {"rule": CentredClipping()},
    "late answers": {"settings": SynchronousSettings(1, fraction=0.5)},
    "backups": {"settings": SynchronousSettings(1, backups=0.5)},
    "local steps": {"settings": SynchronousSettings(1, local=LocalWork(0.1))},
    "not private": {"options": TrainerOptions(privacy=Privacy(1.0, 1.0))},
    "Region's": {"options": TrainerOptions(transport="int8")},
}


@pytest.mark.parametrize("why", REFUSED)
def test_what_needs_single_answers_is_refused_with_the_reason(why):
    place = Regions(Net().node("root"), deal(2))
    given = {"settings": SynchronousSettings(1), **REFUSED[why]}
    with pytest.raises(UsageError, match=why) as found:
        SynchronousTrainer(place, make_model(), PARTS, optimizer=Adam(), **given)
    assert found.value.code == "STO-T040"


async def test_methods_without_rounds_of_gradients_are_refused():
    place = Regions(Net().node("root"), deal(2))
    with pytest.raises(UsageError, match="Federated does not add up"):
        FedAvgTrainer(
            place, make_model(), PARTS, FederatedSettings(1, LocalWork(rate=0.1))
        )
    with pytest.raises(UsageError, match="Copied does not add up"):
        await parallel(make_model(), PARTS, place, nodes=6, epochs=1)


def test_parts_that_no_region_or_two_have_are_refused():
    for shares in ({"r0": (0, 1, 2, 3, 4)}, {"r0": range(6), "r1": (5,)}):
        place = Regions(Net().node("root"), shares)
        with pytest.raises(UsageError, match="each data part"):
            SynchronousTrainer(
                place, make_model(), PARTS, SynchronousSettings(1), Adam()
            )


class Idle(nn.Module):
    """A layer, and beside it one that no gradient reaches."""

    def __init__(self):
        super().__init__()
        torch.manual_seed(0)
        self.used, self.idle = nn.Linear(4, 3), nn.Linear(4, 3)

    def forward(self, x):
        return self.used(x)


def make_torch(place):
    data = [Part(p.x.astype(np.float32), p.y) for p in PARTS]
    kind, kwargs = torch.optim.AdamW, {"lr": 0.1, "weight_decay": 0.5}
    options = DPBGDOptions(clip=None, home_checks=0.0, steps_per_epoch=2)
    about = (nn.CrossEntropyLoss(), kind, kwargs, data)
    return DPBGDTrainer(place, Idle(), *about, options=options), data


async def test_torch_modules_train_alike_and_what_has_no_gradient_rests():
    net, shares = Net(), deal(2)
    root = Regions(net.node("root"), shares)
    trainer, data = make_torch(root)
    loss = {"loss": nn.CrossEntropyLoss(), "model": Idle()}
    regions = [
        make_region(name, net.node(name), share, parts=data, **loss)
        for name, share in shares.items()
    ]
    plain, _ = make_torch(None)
    async with run_regions(*regions) as serving, trainer, plain:
        for _ in range(2):
            await beside(serving, trainer.train_epoch())
            await plain.train_epoch()
    ours, theirs = trainer.model.state_dict(), plain.model.state_dict()
    for name, tensor in theirs.items():
        assert torch.allclose(ours[name], tensor, rtol=1e-5, atol=1e-6)
    assert torch.equal(ours["idle.weight"], Idle().idle.weight)
