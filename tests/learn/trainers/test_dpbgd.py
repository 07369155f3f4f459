"""DPBGDTrainer against torch alone, on threads of this process."""

import copy

import numpy as np
import pytest
import torch
from torch import nn

import stoilo
from stoilo.core.errors import UsageError
from stoilo.learn.backends.local import LocalBackend
from stoilo.learn.trainers.dpbgd import DPBGDOptions, DPBGDTrainer

LOSS = nn.functional.cross_entropy


def make_data(samples=60, seed=0):
    generator = torch.Generator().manual_seed(seed)
    x = torch.randn(samples, 6, generator=generator)
    return x, (x[:, :3].argmax(1))


def make_model(norm=False):
    torch.manual_seed(3)
    middle = [nn.BatchNorm1d(8)] if norm else []
    return nn.Sequential(nn.Linear(6, 8), *middle, nn.Tanh(), nn.Linear(8, 3))


def weights(model):
    return torch.cat([p.detach().ravel() for p in model.parameters()])


def train_alone(model, x, y, epochs, kind=torch.optim.Adam, **options):
    optimizer = kind(model.parameters(), **options)
    for _ in range(epochs):
        optimizer.zero_grad()
        LOSS(model(x), y).backward()
        optimizer.step()
    return model


async def test_listing_2_of_the_thesis_runs_as_printed():
    x, y = make_data()
    async with LocalBackend() as conn:
        model, loss_func, num_epochs = make_model(), LOSS, 3
        optimizer_class, optimizer_kwargs = torch.optim.Adam, {"lr": 0.01}
        dataset = torch.utils.data.TensorDataset(x, y)
        trainer = await stoilo.ml.DPBGDTrainer(conn, model, loss_func,
            optimizer_class, optimizer_kwargs, dataset)  # fmt: skip

        loss_history = []

        for epoch in range(num_epochs):  # noqa: B007 - as printed
            model, avg_loss = await trainer.train_epoch()
            loss_history.append(avg_loss)
    assert loss_history == sorted(loss_history, reverse=True)
    assert len(set(loss_history)) == num_epochs


@pytest.mark.parametrize("sizes", [(60,), (1, 59), (7, 20, 33)])
async def test_step_over_unequal_batches_is_a_step_over_all_samples(sizes):
    x, y = make_data()
    alone = train_alone(make_model(), x, y, 2, lr=0.05)
    async with stoilo.ddl.DPBGDTrainer(
        None, make_model(), loss_fn=LOSS, optimizer_class=torch.optim.Adam,
        optimizer_kwargs={"lr": 0.05},
    ) as trainer:  # fmt: skip
        for _ in range(2):
            batches = list(zip(x.split(list(sizes)), y.split(list(sizes)), strict=True))
            model, loss = await trainer.epoch(batches)
    assert torch.allclose(weights(model), weights(alone), atol=1e-6)
    assert loss == pytest.approx(LOSS(alone(x), y).item(), rel=0.2)


async def test_mean_of_batch_means_would_have_been_wrong():
    """The control of the test above: what the trainer of 2025 did with unequal batches."""
    x, y = make_data()
    model = make_model()
    parts = [(x[:1], y[:1]), (x[1:], y[1:])]
    found = [
        torch.autograd.grad(LOSS(model(a), b), model.parameters()) for a, b in parts
    ]
    right = torch.autograd.grad(LOSS(model(x), y), model.parameters())
    mean = torch.cat([(a + b).ravel() / 2 for a, b in zip(*found, strict=True)])
    whole = torch.cat([part.ravel() for part in right])
    assert (mean - whole).norm() > 0.2 * whole.norm()


async def test_evaluation_of_a_batchnorm_model_is_as_after_local_training():
    x, y = make_data()
    options = DPBGDOptions(tasks=1)
    alone = train_alone(make_model(norm=True), x, y, 3, torch.optim.SGD, lr=0.05)
    async with DPBGDTrainer(
        None, make_model(norm=True), LOSS, torch.optim.SGD, {"lr": 0.05},
        (x, y), options=options,
    ) as trainer:  # fmt: skip
        for _ in range(3):
            model, _ = await trainer.train_epoch()
    found, wanted = model.eval()(x), alone.eval()(x)
    assert torch.allclose(found, wanted, atol=1e-4)
    assert not torch.allclose(make_model(norm=True).eval()(x), wanted, atol=1e-2)


async def test_several_steps_an_epoch_reach_a_lower_loss_than_one():
    ends = []
    for steps in (1, 6):
        options = DPBGDOptions(tasks=4, steps_per_epoch=steps)
        async with DPBGDTrainer(
            None, make_model(), LOSS, torch.optim.Adam, {"lr": 0.02},
            make_data(), options=options,
        ) as trainer:  # fmt: skip
            for _ in range(8):
                _, loss = await trainer.train_epoch()
        ends.append(loss)
    assert ends[1] < 0.8 * ends[0]


async def test_frozen_parameters_stay_and_the_rest_learns():
    model = make_model()
    model[0].weight.requires_grad_(requires_grad=False)
    before = copy.deepcopy(model)
    async with DPBGDTrainer(
        None, model, LOSS, torch.optim.SGD, {"lr": 0.1}, make_data()
    ) as trainer:
        await trainer.train_epoch()
    assert torch.equal(model[0].weight, before[0].weight)
    assert not torch.equal(model[-1].weight, before[-1].weight)


async def test_trainer_of_a_killed_process_goes_on_from_its_folder(tmp_path):
    options = DPBGDOptions(tasks=5, folder=tmp_path)
    ends = []
    for kills in (0, 1):
        options = DPBGDOptions(tasks=5, folder=tmp_path / str(kills))
        make = [torch.optim.Adam, {"lr": 0.05}, make_data()]
        if kills:
            first = DPBGDTrainer(
                LocalBackend(1), make_model(), LOSS, *make, options=options
            )
            await first.start()
            for _ in range(8):
                await first._step()
            await first.run.backend.close()  # and nothing else: as if it were killed
        async with DPBGDTrainer(
            LocalBackend(1), make_model(), LOSS, *make, options=options
        ) as trainer:
            while trainer.epoch_number < 2:
                model, _ = await trainer.train_epoch()
        ends.append(weights(model))
    assert torch.allclose(*ends, atol=1e-6)


@pytest.mark.parametrize(
    ("changes", "code"),
    [
        ({"loss_func": None}, "STO-T040"),
        ({"optimizer_class": None}, "STO-T040"),
        ({"dataset": None}, "STO-T004"),
        ({"dataset": iter([1])}, "STO-T004"),
    ],
)
async def test_missing_argument_is_named(changes, code):
    given = {
        "conn": None,
        "model": make_model(),
        "loss_func": LOSS,
        "optimizer_class": torch.optim.SGD,
        "optimizer_kwargs": {"lr": 0.1},
        "dataset": make_data(),
    }
    with pytest.raises(UsageError, match=code):
        await DPBGDTrainer(**{**given, **changes}).train_epoch()


def test_sixth_argument_may_be_a_flavor_as_in_2025():
    trainer = DPBGDTrainer(
        None, make_model(), LOSS, torch.optim.SGD, {"lr": 1.0}, "tensor"
    )
    assert trainer._own is None
    assert np.isfinite(trainer.snapshot.parameters["0.weight"]).all()
