"""`fit` with torch, and steps that end with a share of their answers, against torch."""

import copy

import pytest
import torch
from torch import nn

import stoilo
from stoilo.core.errors import UsageError
from stoilo.learn import (
    DPBGDOptions,
    DPBGDTrainer,
    SimulatedBackend,
    SimulatedHost,
    TorchModel,
    TorchOptimizer,
    evaluate,
    fit,
)
from stoilo.learn.core.data import Part
from stoilo.learn.trainers.fitting import METHODS


def make_data(samples=96, seed=0):
    generator = torch.Generator().manual_seed(seed)
    x = torch.randn(samples, 6, generator=generator)
    return x, x[:, :3].argmax(1)


def make_model(norm=False):
    torch.manual_seed(3)
    middle = [nn.BatchNorm1d(8)] if norm else []
    return nn.Sequential(nn.Linear(6, 8), *middle, nn.Tanh(), nn.Linear(8, 3))


def weights(model):
    return torch.cat([p.detach().ravel() for p in model.parameters()])


def make_loader(size=8):
    x, y = make_data()
    return list(zip(x.split(size), y.split(size), strict=True))


def make_trainer(place, fraction=1.0):
    adam = torch.optim.Adam, {"lr": 0.02}
    options = DPBGDOptions(fraction=fraction)
    loss = nn.CrossEntropyLoss()
    return DPBGDTrainer(place, make_model(), loss, *adam, options=options)


def train_alone(steps):
    model, (x, y) = make_model(), make_data()
    optimizer = torch.optim.Adam(model.parameters(), lr=0.02)
    for _ in range(steps):
        optimizer.zero_grad()
        loss = nn.functional.cross_entropy(model(x), y)
        loss.backward()
        optimizer.step()
    return model, loss.item()


async def test_steps_over_loaders_are_steps_over_all_batches():
    async with make_trainer(None) as trainer:
        for _ in range(3):
            model, loss = await trainer.epoch(make_loader())
    alone, wanted = train_alone(3)
    assert torch.allclose(weights(model), weights(alone), atol=1e-6)
    assert loss == pytest.approx(wanted, rel=1e-5)
    assert (trainer.epochs[-1].accepted_tasks, trainer.epochs[-1].samples) == (12, 96)


async def test_partial_step_waits_for_a_share_and_drops_the_rest():
    hosts = SimulatedBackend([SimulatedHost(samples_per_s=10.0 + i) for i in range(32)])
    async with make_trainer(hosts, fraction=0.875) as trainer:
        await trainer.epoch(make_loader(3))
    assert (trainer.epochs[-1].accepted_tasks, trainer.epochs[-1].samples) == (28, 84)


async def test_whole_step_waits_for_all_of_them():
    """The control of the test above."""
    hosts = SimulatedBackend([SimulatedHost(samples_per_s=10.0 + i) for i in range(32)])
    async with make_trainer(hosts) as trainer:
        await trainer.epoch(make_loader(3))
    assert trainer.epochs[-1].accepted_tasks == 32


@pytest.mark.parametrize("method", ["vcasgd", "dpbgd", "fedavg"])
async def test_torch_module_and_loss_are_enough(method):
    model, loss = make_model(norm=True), nn.functional.cross_entropy
    before = copy.deepcopy(model)
    steps = {} if method == "dpbgd" else {"steps": 4}
    steps |= {"alpha": 0.5} if method == "vcasgd" else {}
    trained = await fit(
        method, model, make_data(), loss=loss, epochs=6, batch=8, rate=0.05,
        held_out=make_data(90, seed=1), optimizer=None, **steps,
    )  # fmt: skip
    assert trained.model is model
    losses = [epoch.held_out.loss for epoch in trained.epochs]
    assert losses[-1] < 0.9 * losses[0]
    assert trained.epochs[-1].held_out.accuracy > 0.5
    assert not torch.equal(weights(model), weights(before))


async def test_torch_optimiser_steps_at_the_server():
    form = TorchModel(make_model(), nn.functional.cross_entropy)
    like = form.first().parameters
    server = TorchOptimizer(torch.optim.Adam, {"lr": 0.02}, like)
    trained = await fit("dpbgd", form, make_data(), epochs=3, optimizer=server)
    assert torch.allclose(weights(trained.model), weights(train_alone(3)[0]), atol=1e-6)


def test_evaluation_leaves_the_module_as_it_is_and_counts():
    model = make_model(norm=True).train()
    form, (x, y) = TorchModel(model, nn.functional.cross_entropy), make_data()
    found = evaluate(form, form.first(), Part(x.numpy(), y.numpy()), batch=10)
    assert model.training
    assert model[1].num_batches_tracked == 0
    wanted = copy.deepcopy(model).eval()(x)
    assert found.accuracy == int((wanted.argmax(1) == y).sum()) / 96
    assert found.loss == pytest.approx(nn.functional.cross_entropy(wanted, y).item())


def test_thesis_names_hold_every_trainer():
    for place in (stoilo.ml, stoilo.ddl):
        assert place.VCASGDTrainer is stoilo.learn.VCASGDTrainer
        assert place.DPBGDTrainer is DPBGDTrainer
    with pytest.raises(AttributeError, match="nothing"):
        stoilo.ml.nothing  # noqa: B018 - the access is the test


@pytest.mark.parametrize("method", METHODS)
async def test_setting_that_no_method_has_is_named(method):
    model = None if method == "logistic" else make_model()
    given = {"loss": nn.functional.cross_entropy, "alpah": 0.5, "epochs": 1}
    with pytest.raises(UsageError, match="alpah") as caught:
        await fit(method, model, make_data(), **given)
    assert caught.value.code == "STO-T040"
