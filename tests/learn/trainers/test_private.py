"""Trainers whose versions tell little of a data part: ε in metrics, resumes, refusals."""

from dataclasses import replace

import numpy as np
import pytest

from stoilo.core.errors import UsageError
from stoilo.learn import (
    DPBGDOptions,
    DPBGDTrainer,
    FedAvgTrainer,
    FederatedSettings,
    LargeMinibatchSettings,
    LargeMinibatchTrainer,
    LocalWork,
    Near,
    Privacy,
    Sgd,
    SimulatedBackend,
    SimulatedHost,
    StopRule,
    SynchronousSettings,
    SynchronousTrainer,
    TrainerOptions,
    fit,
    split,
)
from stoilo.learn.coordinator.sheet import pack_options
from stoilo.learn.core.data import Part
from stoilo.learn.methods.privacy import find_epsilon
from tests.support.points import make_model, make_samples, softmax_loss

DATA = make_samples(600)
PRIVACY = Privacy(clip=1.0, noise=2.0, delta=1e-6)
OPTIONS = TrainerOptions(tasks=30, privacy=PRIVACY)


def train(epochs=3, options=OPTIONS, place=None, settings=None, rule=None):
    chosen = settings or SynchronousSettings(epochs)
    model = make_model()
    return SynchronousTrainer(
        place, model, DATA, chosen, Sgd(1.0), rule=rule, options=options
    )


def lossy_hosts():
    return SimulatedBackend([SimulatedHost(loss=0.2) for _ in range(4)])


@pytest.mark.parametrize("place", [lambda: None, lossy_hosts])
async def test_private_training_learns_and_its_metrics_say_what_it_costs(place):
    options = replace(OPTIONS, held_out=DATA)
    async with train(30, options, place()) as trainer:
        trained = await trainer.train()
    loss = softmax_loss(trained.snapshot.parameters, *DATA)[0] / len(DATA[0])
    assert loss < 0.6 * np.log(3)
    for epoch in trained.epochs:
        steps = epoch.epoch + 1
        assert epoch.epsilon == pytest.approx(find_epsilon(steps / 8, 1e-6))


async def test_without_privacy_metrics_name_no_epsilon():
    async with train(1, TrainerOptions(tasks=4)) as trainer:
        assert (await trainer.train()).epochs[0].epsilon is None


async def test_no_part_moves_the_model_farther_than_the_clip_lets_it():
    """A part a million times as large; the control trains without privacy."""
    x, y = DATA
    parts = split(x, y, 10)
    parts[3] = Part(1e6 * parts[3].x, parts[3].y)
    found = {}
    for privacy in (Privacy(1.0, 1e-3), None):
        options = TrainerOptions(privacy=privacy, clip=None, home_checks=0.0)
        settings = SynchronousSettings(1)
        async with SynchronousTrainer(
            None, make_model(), parts, settings, Sgd(1.0), options=options
        ) as trainer:
            trained = await trainer.train()
        found[privacy] = max(
            np.abs(a).max() for a in trained.snapshot.parameters.values()
        )
    assert found[Privacy(1.0, 1e-3)] < 1.1
    assert found[None] > 1e3


async def test_bound_that_moves_with_other_parts_gives_way_to_the_fixed_one():
    """Else a part would decide how far others count; without privacy it is cut."""
    x, y = DATA
    parts = [*split(x[:300], y[:300], 6), Part(1e3 * x[300:], y[300:])]
    found = []
    for privacy in (Privacy(1.0, 1.0), None):
        options = TrainerOptions(privacy=privacy, home_checks=0.0)
        settings = SynchronousSettings(2)
        async with SynchronousTrainer(
            None, make_model(), parts, settings, Sgd(0.1), options=options
        ) as trainer:
            found.append((await trainer.train()).tally.shortened)
    assert found[0] == 0 < found[1]


async def test_killed_training_goes_on_counting_where_it_was(tmp_path):
    options = replace(OPTIONS, folder=tmp_path)
    async with train(4, options) as trainer:
        for _ in range(2):
            await trainer.train_epoch()
    async with train(4, options) as trainer:
        trained = await trainer.train()
        assert [e.epsilon for e in trainer.epochs] == [
            pytest.approx(find_epsilon(steps / 8, 1e-6)) for steps in (1, 2, 3, 4)
        ]
    assert trained.epochs[-1].epoch == 3


@pytest.mark.parametrize("other", [None, replace(PRIVACY, noise=0.1)])
async def test_folder_of_a_private_training_is_not_taken_up_with_less_noise(
    tmp_path, other
):
    async with train(4, replace(OPTIONS, folder=tmp_path)) as trainer:
        await trainer.train_epoch()
    with pytest.raises(UsageError, match="STO-T012"):
        async with train(4, replace(OPTIONS, folder=tmp_path, privacy=other)):
            pass


async def test_large_minibatches_and_fit_take_it_too():
    settings = LargeMinibatchSettings(2, 5, 0.01)
    async with LargeMinibatchTrainer(
        None, make_model(), DATA, settings, options=OPTIONS
    ) as trainer:
        found = [(await trainer.train()).epochs[-1].epsilon]
    for method in ("dpbgd", "sync"):
        model, wanted = make_model(), {"epochs": 2, "batch": 5, "rate": 0.01}
        trained = await fit(method, model, DATA, options=OPTIONS, **wanted)
        found.append(trained.epochs[-1].epsilon)
    assert min(found) > 0.0


def with_rule():
    return train(rule=Near())


def with_a_stop_by_the_parts_losses():
    return train(options=replace(OPTIONS, stop=StopRule(patience=2)))


def by_federated_averaging():
    settings = FederatedSettings(2, LocalWork(0.1))
    return FedAvgTrainer(None, make_model(), DATA, settings, options=OPTIONS)


@pytest.mark.parametrize(
    "make", [with_rule, with_a_stop_by_the_parts_losses, by_federated_averaging]
)
def test_mix_that_would_leak_is_refused_by_name(make):
    with pytest.raises(UsageError, match=r"(rule|plain rounds|losses).*STO-T040"):
        make()


async def test_stop_by_other_data_is_taken():
    stop = StopRule(patience=1, least_gain=10.0)
    options = replace(OPTIONS, stop=stop, held_out=make_samples(50, seed=2))
    async with train(9, options) as trainer:
        assert len((await trainer.train()).epochs) == 2


async def test_parts_of_a_private_training_cannot_be_changed():
    async with train() as trainer:
        with pytest.raises(UsageError, match="STO-T040"):
            await trainer.change_data(DATA)


def test_private_training_is_not_handed_over():
    with pytest.raises(UsageError, match="privacy"):
        pack_options(OPTIONS, 0.0)


def torch_trainer(options, *, norm=False):
    torch = pytest.importorskip("torch")
    x, y = (torch.from_numpy(a) for a in DATA)
    middle = [torch.nn.BatchNorm1d(4)] if norm else []
    module = torch.nn.Sequential(*middle, torch.nn.Linear(4, 3)).double()
    loss, kind = torch.nn.functional.cross_entropy, torch.optim.Adam
    data = torch.utils.data.TensorDataset(x, y)
    return DPBGDTrainer(None, module, loss, kind, {"lr": 0.1}, data, options=options)


async def test_published_trainer_can_be_private_on_its_own_dataset_alone():
    options = DPBGDOptions(tasks=30, privacy=PRIVACY, steps_per_epoch=2)
    async with torch_trainer(options) as trainer:
        await trainer.train_epoch()
        found = trainer.epochs[-1].epsilon
        assert found == pytest.approx(find_epsilon(2 / 8, 1e-6))
        with pytest.raises(UsageError, match="STO-T040"):
            await trainer.epoch([DATA])


def test_batchnorm_is_refused_as_its_statistics_have_no_noise():
    options = DPBGDOptions(tasks=30, privacy=PRIVACY)
    with pytest.raises(UsageError, match=r"BatchNorm.*STO-T040"):
        torch_trainer(options, norm=True)
