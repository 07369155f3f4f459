"""Target and patience: what ends a training before its epochs are done."""

import math

import pytest
import torch
from torch import nn

from stoilo.core.errors import UsageError
from stoilo.learn import (
    METHODS,
    DPBGDOptions,
    DPBGDTrainer,
    EpochMetrics,
    Evaluation,
    LocalBackend,
    Part,
    SimulatedBackend,
    SimulatedHost,
    StopRule,
    TrainerOptions,
    evaluate,
    fit,
    make_trainer,
)
from stoilo.learn.core.states import State
from stoilo.learn.trainers.epochs import Epochs
from tests.support.points import WISHES, make_model, make_samples

DATA = make_samples()


def epochs(*losses, accuracies=None):
    found = accuracies or [None] * len(losses)
    return [
        EpochMetrics(i, loss, 1, 1, 0, 0.0, Evaluation(loss, right, 1))
        for i, (loss, right) in enumerate(zip(losses, found, strict=True))
    ]


@pytest.mark.parametrize(
    ("rule", "losses", "reached"),
    [
        (StopRule(target=0.5), (0.9, 0.51), False),
        (StopRule(target=0.5), (0.9, 0.5), True),
        (StopRule(patience=2), (0.9, 0.8, 0.81), False),
        (StopRule(patience=2), (0.9, 0.8, 0.81, 0.8), True),
        (StopRule(patience=2), (0.9, 0.8, 0.81, 0.79), False),
        (StopRule(patience=2, least_gain=0.1), (0.9, 0.85, 0.81), True),
        (StopRule(patience=1), (math.nan, math.inf), True),
        (StopRule(patience=1), (math.nan, 3.0), False),
        (StopRule(target=0.5), (math.nan,), False),
        (StopRule(target=0.5), (), False),
    ],
)
def test_rule_is_reached_by_the_losses(rule, losses, reached):
    assert rule.is_reached(epochs(*losses)) is reached


def test_accuracy_is_the_better_the_larger():
    rule = StopRule(target=0.9, watch="accuracy")
    assert not rule.is_reached(epochs(0.1, accuracies=[0.89]))
    assert rule.is_reached(epochs(9.0, accuracies=[0.9]))


def test_loss_is_of_the_answers_without_held_out_data():
    assert StopRule(target=0.5).is_reached([EpochMetrics(0, 0.4, 1, 1, 0, 0.0)])


def test_loss_of_the_answers_is_their_median():
    one = EpochMetrics(0, -9.0, 3, 3, 0, 0.0, median_loss=0.6)
    assert not StopRule(target=0.5).is_reached([one])
    assert StopRule(target=0.6).is_reached([one])


def lie(value):
    return {**value, "loss_sum": -1e6}


def hosts_with_a_liar():
    honest = [SimulatedHost() for _ in range(7)]
    return SimulatedBackend([*honest, SimulatedHost(cheat=lie)])


@pytest.mark.parametrize("method", ["vcasgd", "dpbgd"])
async def test_false_losses_of_one_host_end_no_training(method):
    trained = await fit(
        method, make_model(), DATA, hosts_with_a_liar(), epochs=3, batch=10,
        rate=1e-3, stop=StopRule(target=0.4),
        options=TrainerOptions(in_flight=8, home_checks=0.0),
    )  # fmt: skip
    assert len(trained.epochs) == 3
    assert min(epoch.average_loss for epoch in trained.epochs) < 0.4
    assert all(epoch.median_loss > 0.9 for epoch in trained.epochs)


async def test_loss_below_the_least_is_refused():
    options = TrainerOptions(least_loss=0.0, in_flight=8)
    trained = await fit(
        "vcasgd", make_model(), DATA, hosts_with_a_liar(), epochs=3, options=options
    )
    assert min(epoch.average_loss for epoch in trained.epochs) > 0.0


@pytest.mark.parametrize(
    "wrong",
    [{}, {"patience": 0}, {"target": math.nan}, {"target": 1.0, "least_gain": -1.0}],
)
def test_rule_that_stops_nothing_is_refused(wrong):
    with pytest.raises(UsageError, match="STO-T040"):
        StopRule(**wrong)


async def test_number_that_no_epoch_has_is_named():
    rule = StopRule(target=0.9, watch="accuracy")
    with pytest.raises(UsageError, match=r"no accuracy.*STO-T040"):
        await fit("vcasgd", make_model(), DATA, epochs=2, stop=rule)


@pytest.mark.parametrize("method", METHODS)
async def test_every_trainer_stops_at_its_target_and_not_before(method):
    wish = {"batch": 10, **WISHES[method], "epochs": 30}
    rule = StopRule(target=0.97)
    trained = await fit(method, make_model(), DATA, held_out=DATA, stop=rule, **wish)
    losses = [epoch.held_out.loss for epoch in trained.epochs]
    assert losses[-1] <= 0.97 < min(losses[:-1], default=math.inf)
    assert len(losses) < 30


async def test_stopped_trainer_has_nothing_under_way_and_trains_no_more():
    async with LocalBackend() as place:
        options = TrainerOptions(stop=StopRule(patience=1, least_gain=1e-3))
        trainer = make_trainer(
            "vcasgd", make_model(), DATA, place, rate=1e-9, options=options, epochs=99
        )
        trained = await trainer.train()
        assert len(trained.epochs) < 99
        assert trainer.finished
        assert trainer.stopped
        assert await place.next() is None
        with pytest.raises(UsageError, match="STO-T081"):
            await trainer.train_epoch()


@pytest.mark.parametrize("method", ["dpbgd", "vcasgd", "downpour"])
async def test_stop_outlives_the_process_and_a_harder_target_goes_on(method, tmp_path):
    counts = []
    for target in (0.97, 0.97, 0.3):
        options = TrainerOptions(folder=tmp_path, stop=StopRule(target=target))
        wish = {"batch": 10, **WISHES[method], "epochs": 30}
        async with make_trainer(
            method, make_model(), DATA, options=options, **wish
        ) as trainer:
            await trainer.train()
            counts.append(trainer.epoch_number)
    assert counts[0] == counts[1] < counts[2] < 30


async def train_too_far(method, folder=None, *, answers=None, **rule):
    """Train with a rate that grows until the loss does, too."""
    wish = {"batch": 10, **WISHES[method], "epochs": 30}
    options = TrainerOptions(
        tasks=4,
        folder=folder,
        held_out=DATA,
        stop=StopRule(patience=3, **rule),
        schedule=lambda update: 1.5**update,
        clip=None,
    )
    async with LocalBackend(1) as place:
        trainer = make_trainer(
            method, make_model(), DATA, place, options=options, **wish
        )
        for _ in range(answers or 0):
            await trainer._step()
        return trainer if answers else await trainer.train()


@pytest.mark.parametrize("method", ["dpbgd", "fedavg", "diloco", "vcasgd"])
async def test_training_ends_with_the_best_version(method):
    trained = await train_too_far(method)
    losses = [epoch.held_out.loss for epoch in trained.epochs]
    found = evaluate(trained.held_by, trained.snapshot, Part(*DATA)).loss
    assert found == min(losses) < losses[-1]
    last = await train_too_far(method, restore=False)
    found = evaluate(last.held_by, last.snapshot, Part(*DATA)).loss
    assert found == last.epochs[-1].held_out.loss > min(losses)


@pytest.mark.parametrize("answers", [9, 13, 18])
async def test_best_version_outlives_the_process(answers, tmp_path):
    whole = await train_too_far("fedavg")
    await train_too_far("fedavg", tmp_path, answers=answers)
    trained = await train_too_far("fedavg", tmp_path)
    assert trained.snapshot.version == whole.snapshot.version
    for name, array in whole.snapshot.parameters.items():
        assert array.tobytes() == trained.snapshot.parameters[name].tobytes()


async def test_best_version_of_loaders_is_kept_with_the_epochs(tmp_path):
    x, y = torch.tensor(DATA[0], dtype=torch.float32), torch.tensor(DATA[1])
    options = DPBGDOptions(
        folder=tmp_path, held_out=(x, y), stop=StopRule(patience=2), clip=None
    )
    versions = []
    for _ in range(2):  # the second process finds it stopped
        async with DPBGDTrainer(
            None, nn.Linear(4, 3), nn.CrossEntropyLoss(), torch.optim.SGD, {"lr": 40.0},
            options=options,
        ) as trainer:  # fmt: skip
            while not trainer.finished:
                await trainer.epoch(zip(x.split(40), y.split(40), strict=True))
            versions.append(trainer.snapshot.version)
    best = StopRule(patience=2).find_best(trainer.epochs)
    assert versions == [best + 1] * 2
    assert best + 1 < trainer.epoch_number


def test_checkpoint_without_a_best_version_is_read():
    record = Epochs()
    record.load(State({}, {"ended": []}))
    assert record.best == []
