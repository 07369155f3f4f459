"""What a trainer knows after its process was killed: epochs, their metrics, where it is."""

import shutil

import pytest
import torch
from torch import nn

from stoilo.core.errors import TrustError
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
from stoilo.learn.trainers.metrics import EpochLog
from stoilo.testing.points import WISHES, make_model, make_samples

DATA = make_samples()


async def train(folder, method, *, answers=None, **changes):
    """Train to the end, or until the process is killed after so many answers."""
    wish = {"batch": 10, **WISHES[method], "epochs": 3, **changes}
    options = TrainerOptions(tasks=4, folder=folder, held_out=DATA)
    place = LocalBackend(1)
    trainer = make_trainer(method, make_model(), DATA, place, options=options, **wish)
    if answers is None:
        async with place, trainer:
            await trainer.train()
    else:
        for _ in range(answers):
            await trainer._step()
        await place.close()  # and nothing else: as if it were killed
    return trainer


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


async def test_epoch_number_is_known_before_a_step(tmp_path):
    await train(tmp_path, "vcasgd", answers=9)
    options = TrainerOptions(tasks=4, folder=tmp_path)
    wish = {**WISHES["vcasgd"], "batch": 10, "epochs": 3}
    trainer = await make_trainer("vcasgd", make_model(), DATA, options=options, **wish)
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


def test_line_that_a_crash_cut_off_counts_as_not_written(tmp_path):
    log, one = EpochLog(tmp_path), EpochMetrics(0, 1.5, 6, 2, 0, 0.5)
    two = EpochMetrics(
        1, float("nan"), 6, 2, 0, 0.5, Evaluation(0.5, 0.9, 6), 3.0, 0.25
    )
    log.append(one)
    log.append(two)
    path = tmp_path / "epochs.jsonl"
    assert str(log.read()) == str([one, two])
    path.write_text(path.read_text()[:-9])
    assert log.read() == [one]
    log.append(two)
    assert str(log.read()) == str([one, two])


@pytest.mark.parametrize("line", ["{", "[]", '{"epoch": 0}', '{"epoch": "a"}'])
def test_damaged_line_is_named(line, tmp_path):
    (tmp_path / "epochs.jsonl").write_text(f"{line}\n")
    with pytest.raises(TrustError, match="STO-T011"):
        EpochLog(tmp_path).read()


async def test_epochs_of_a_removed_checkpoint_are_forgotten(tmp_path):
    await train(tmp_path, "vcasgd")
    for path in tmp_path.iterdir():
        if path.is_dir():
            shutil.rmtree(path)
        elif path.name != "epochs.jsonl":
            path.unlink()
    trainer = await train(tmp_path, "vcasgd", answers=1)
    assert trainer.epoch_number == 0
