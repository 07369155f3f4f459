"""Learning rates by the number of the update: curves, every method's rate, kills."""

import math

import numpy as np
import pytest
import torch
from torch.optim import lr_scheduler

from stoilo.core.errors import UsageError
from stoilo.learn import (
    METHODS,
    Adagrad,
    Cosine,
    DPBGDOptions,
    DPBGDTrainer,
    LocalBackend,
    Sgd,
    StepDecay,
    TorchSchedule,
    TrainerOptions,
    WarmUp,
    fit,
    make_trainer,
)
from tests.support.points import WISHES, make_model, make_samples

DATA = make_samples()
RATED = [method for method in METHODS if method != "sandblaster"]


@pytest.mark.parametrize(
    ("schedule", "wanted"),
    [
        (WarmUp(4, 0.2), [0.2, 0.4, 0.6, 0.8, 1.0, 1.0]),
        (WarmUp(2, 0.0, then=StepDecay(1, 0.5)), [0.0, 0.5, 1.0, 0.5, 0.25]),
        (StepDecay(2, 0.1), [1.0, 1.0, 0.1, 0.1, 0.01]),
        (Cosine(4), [1.0, 0.5 + math.sqrt(0.125), 0.5, 0.5 - math.sqrt(0.125), 0.0, 0.0]),
        (Cosine(2, least=0.5), [1.0, 0.75, 0.5, 0.5]),
    ],
)  # fmt: skip
def test_factors_are_those_of_the_curve(schedule, wanted):
    found = [schedule(update) for update in range(len(wanted))]
    assert found == pytest.approx(wanted)


@pytest.mark.parametrize(
    "make",
    [lambda: WarmUp(0), lambda: WarmUp(3, 2.0), lambda: StepDecay(0), lambda: Cosine(0)],
)  # fmt: skip
def test_curve_without_length_is_refused(make):
    with pytest.raises(UsageError, match="STO-T040"):
        make()


@pytest.mark.parametrize(
    ("kind", "options"),
    [
        (lr_scheduler.StepLR, {"step_size": 3}),
        (lr_scheduler.CosineAnnealingLR, {"T_max": 20, "eta_min": 0.01}),
        (lr_scheduler.LinearLR, {"total_iters": 5}),
        (lr_scheduler.ExponentialLR, {"gamma": 0.9}),
    ],
)
def test_torch_scheduler_gives_the_rates_of_its_own_steps(kind, options):
    weight = torch.zeros(1, requires_grad=True)
    optimizer = torch.optim.SGD([weight], lr=0.4)
    schedule, ours = kind(optimizer, **options), TorchSchedule(kind, options, 0.4)
    for update in range(150):
        rate = optimizer.param_groups[0]["lr"]
        assert 0.4 * ours(update) == pytest.approx(rate, rel=1e-12)
        optimizer.step()
        schedule.step()


def test_torch_scheduler_that_wants_a_metric_is_refused():
    with pytest.raises(UsageError, match=r"ReduceLROnPlateau.*STO-T040"):
        TorchSchedule(lr_scheduler.ReduceLROnPlateau, {}, 0.1)


def make(method, place=None, *, folder=None, schedule=None, **more):
    wish = {"batch": 10, **WISHES[method], "epochs": 3, **more}
    options = TrainerOptions(tasks=4, folder=folder, schedule=schedule)
    return make_trainer(method, make_model(), DATA, place, options=options, **wish)


async def train(method, **more):
    async with LocalBackend(1) as place, make(method, place, **more) as trainer:
        await trainer.train()
        return trainer.snapshot.parameters["w"]


@pytest.mark.parametrize("method", RATED)
async def test_rate_by_half_is_half_the_rate_in_every_trainer(method):
    rate = WISHES[method].get("rate", 0.1)
    servers = {"downpour": {"optimizer": Adagrad(0.025)}}  # the other of its rates
    half = await train(method, rate=rate / 2, **servers.get(method, {}))
    assert np.array_equal(await train(method, rate=rate, schedule=lambda _: 0.5), half)
    assert not np.array_equal(await train(method, rate=rate), half)


@pytest.mark.parametrize("method", RATED)
async def test_schedule_goes_on_after_a_kill_to_the_last_bit(method, tmp_path):
    curve = WarmUp(3, 0.2, then=Cosine(30, 0.1))
    whole = await train(method, schedule=curve)
    async with LocalBackend(1) as place:
        killed = make(method, place, folder=tmp_path, schedule=curve)
        for _ in range(7):
            await killed._step()
    assert np.array_equal(await train(method, folder=tmp_path, schedule=curve), whole)


async def test_folder_of_another_schedule_is_another_training(tmp_path):
    await train("fedavg", folder=tmp_path, schedule=Cosine(30))
    with pytest.raises(UsageError, match=r"schedule.*STO-T012"):
        await train("fedavg", folder=tmp_path, schedule=Cosine(40))


async def test_line_search_takes_no_schedule():
    with pytest.raises(UsageError, match=r"Sandblaster.*STO-T040"):
        await fit("sandblaster", make_model(), DATA, schedule=Cosine(9))


@pytest.mark.parametrize("factor", [-1.0, math.nan, math.inf])
async def test_factor_that_is_none_is_refused(factor):
    with pytest.raises(UsageError, match=r"update 0.*STO-T040"):
        await fit("fedavg", make_model(), DATA, schedule=lambda _: factor)


async def test_dpbgd_follows_torch_and_its_scheduler():
    x, y = torch.tensor(DATA[0], dtype=torch.float64), torch.tensor(DATA[1])
    torch.manual_seed(0)
    ours = torch.nn.Linear(4, 3).double()
    theirs = torch.nn.Linear(4, 3).double()
    theirs.load_state_dict(ours.state_dict())
    loss, kind = torch.nn.CrossEntropyLoss(), lr_scheduler.StepLR
    options = DPBGDOptions(
        tasks=3, clip=None, schedule=TorchSchedule(kind, {"step_size": 2}, 0.5)
    )
    optimizer = torch.optim.SGD(theirs.parameters(), lr=0.5, momentum=0.9)
    scheduler = kind(optimizer, step_size=2)
    async with DPBGDTrainer(
        None, ours, loss, torch.optim.SGD, {"lr": 0.5, "momentum": 0.9}, (x, y),
        options=options,
    ) as trainer:  # fmt: skip
        for _ in range(6):
            ours, _ = await trainer.train_epoch()
            optimizer.zero_grad()
            loss(theirs(x), y).backward()
            optimizer.step()
            scheduler.step()
    torch.testing.assert_close(ours.weight, theirs.weight, rtol=1e-10, atol=1e-12)


def test_optimiser_keeps_its_own_rate():
    optimizer = Sgd(0.5)
    method = make("dpbgd", schedule=StepDecay(1), optimizer=optimizer).run.method
    method._move_by(method.optimizer, dict(method.snapshot.parameters))
    assert method.optimizer.rate == optimizer.rate == 0.5
