"""What a trainer knows after its process was killed: epochs, their metrics, where it is."""

import numpy as np
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
    TrainerOptions,
    make_trainer,
)
from stoilo.learn.trainers.epochs import Epochs
from tests.support.points import WISHES, make_model, make_samples
from tests.support.resuming import store

DATA = make_samples()


def make(folder, method, place):
    wish = {"batch": 10, **WISHES[method], "epochs": 3}
    options = TrainerOptions(tasks=4, folder=folder, held_out=DATA)
    return make_trainer(method, make_model(), DATA, place, options=options, **wish)


async def train(folder, method, *, answers=None):
    """Train to the end, or until the process is killed after so many answers."""
    async with LocalBackend(1) as place:
        trainer = make(folder, method, place)
        if answers is None:
            async with trainer:
                await trainer.train()
        for _ in range(answers or 0):
            await trainer._step()
    return trainer  # killed: nothing else was closed


@pytest.mark.parametrize("method", METHODS)
async def test_epochs_before_the_kill_are_counted_and_kept(method, tmp_path):
    answers = {"downpour": 16, "sync": 30}.get(method, 9)
    killed = await train(tmp_path, method, answers=answers)
    before = list(killed.epochs)
    trainer = await train(tmp_path, method)
    assert before
    assert trainer.epochs[: len(before)] == before
    assert [epoch.epoch for epoch in trainer.epochs] == list(range(len(trainer.epochs)))
    whole = await train(tmp_path / "whole", method)
    assert trainer.epoch_number == whole.epoch_number


async def test_epoch_with_a_kill_in_its_middle_has_all_its_answers(tmp_path):
    await train(tmp_path / "killed", "dpbgd", answers=6)
    killed = await train(tmp_path / "killed", "dpbgd")
    whole = await train(tmp_path / "whole", "dpbgd")
    for one, other in zip(killed.epochs, whole.epochs, strict=True):
        assert (one.samples, one.accepted_tasks) == (120, 4)
        assert one.average_loss == pytest.approx(other.average_loss, rel=1e-9)


async def test_epoch_number_is_known_before_a_step(tmp_path):
    await train(tmp_path, "vcasgd", answers=9)
    trainer = await make(tmp_path, "vcasgd", None)
    assert trainer.epoch_number == 2
    await trainer.close()


async def test_loop_over_epochs_trains_as_many_as_it_says_with_a_kill(tmp_path):
    torch.manual_seed(0)
    model, (x, y) = nn.Linear(4, 3), DATA
    data = x.astype("float32"), y
    options = DPBGDOptions(tasks=4, folder=tmp_path)
    made, versions = 0, []
    for process in range(3):
        trainer = await DPBGDTrainer(
            None, model, nn.CrossEntropyLoss(), torch.optim.SGD, {"lr": 0.1}, data,
            options=options,
        )  # fmt: skip
        while trainer.epoch_number < 2 + process:
            await trainer.train_epoch()
            made += 1
        versions.append(trainer.snapshot.version)
        await trainer.close()
    assert (made, versions) == (4, [2, 3, 4])


def test_epochs_come_back_as_they_were_saved():
    scores = Evaluation(0.5, 0.9, 6)
    two = EpochMetrics(1, float("nan"), 6, 2, 0, 0.5, scores, 3.0, 0.25)
    record, again = Epochs(), Epochs()
    record.ended = [EpochMetrics(0, 1.5, 6, 2, 0, 0.5), two]
    again.load(store(record.save()))
    assert str(again.ended) == str(record.ended)


async def test_epochs_of_a_removed_checkpoint_are_forgotten(tmp_path):
    await train(tmp_path, "vcasgd")
    (tmp_path / "run.json").unlink()
    trainer = await train(tmp_path, "vcasgd", answers=1)
    assert trainer.epoch_number == 0


def make_loader():
    x, y = DATA
    pairs = zip(np.array_split(x, 4), np.array_split(y, 4), strict=True)
    return [(x.astype(np.float32), y) for x, y in pairs]


def make_steps(folder):
    torch.manual_seed(0)
    options = DPBGDOptions(folder=folder)
    arguments = nn.CrossEntropyLoss(), torch.optim.Adam, {"lr": 0.05}
    return DPBGDTrainer(LocalBackend(1), nn.Linear(4, 3), *arguments, options=options)


async def test_steps_over_loaders_go_on_with_model_and_optimiser(tmp_path):
    ends = []
    for kills in (0, 1):
        trainer = await make_steps(tmp_path / str(kills)).start()
        while trainer.epoch_number < 4:
            if kills and trainer.epoch_number == 2:
                await trainer.epoch_create_work(make_loader())
                await trainer._step()
                await trainer.run.backend.close()  # as if it were killed
                kills = 0  # noqa: PLW2901 - once
                trainer = await make_steps(tmp_path / "1").start()
            await trainer.epoch(make_loader())
        ends.append(trainer.model.weight.detach().numpy().copy())
        await trainer.close()
    np.testing.assert_allclose(*ends, atol=1e-6)


@pytest.mark.parametrize("kind", [torch.optim.SGD, torch.optim.Adam])
async def test_folder_of_loaders_is_of_one_optimiser(kind, tmp_path):
    trainer = await make_steps(tmp_path).start()
    await trainer.epoch(make_loader())
    await trainer.close()
    options = DPBGDOptions(folder=tmp_path)
    arguments = nn.CrossEntropyLoss(), kind, {"lr": 0.01}
    with pytest.raises(UsageError, match="STO-T012"):
        await DPBGDTrainer(None, nn.Linear(4, 3), *arguments, options=options)
