"""The published trainers, shown: estimate first, a line an epoch, the hooks of the others."""

import io

import pytest
import torch
from rich.console import Console
from torch import nn

from stoilo.core.errors import UsageError
from stoilo.learn.trainers.dpbgd import DPBGDOptions, DPBGDTrainer
from stoilo.learn.trainers.progress import Conditions, Display

STEP = nn.CrossEntropyLoss(), torch.optim.SGD, {"lr": 0.1}


def make_batches():
    generator = torch.Generator().manual_seed(0)
    x = torch.randn(24, 3, generator=generator)
    return list(zip(x.split(8), x.argmax(1).split(8), strict=True))


def make_data():
    return tuple(torch.cat(halves) for halves in zip(*make_batches(), strict=True))


def make_trainer(data=None, **options):
    return DPBGDTrainer(
        None, nn.Linear(3, 3), *STEP, data,
        options=DPBGDOptions(tasks=3, **options),
    )  # fmt: skip


def make_display():
    console = Console(file=io.StringIO(), force_terminal=False, width=200)
    return Display(console), console.file


def assert_shown(text, epochs):
    lines = [line for line in text.splitlines() if not line.startswith("warning")]
    assert lines[0].startswith("step ≈")
    assert "3 tasks, 3 rounds" in lines[0]
    assert lines[1].startswith("One copy of each task is believed; 0.02 of")
    assert [line[:7] for line in lines[2:]][:epochs] == [
        f"epoch {number}" for number in range(epochs)
    ]
    assert text.count("step ≈") == 1


async def test_epochs_on_the_own_data_are_shown():
    display, file = make_display()
    conditions = Conditions(volunteers=1)
    shown = {"progress": display, "conditions": conditions}
    async with make_trainer(make_data(), **shown) as trainer:
        for _ in range(2):
            await trainer.train_epoch()
    assert_shown(file.getvalue(), 2)


async def test_steps_over_loaders_are_shown():
    display, file = make_display()
    options = DPBGDOptions(progress=display, conditions=Conditions(volunteers=1))
    async with DPBGDTrainer(None, nn.Linear(3, 3), *STEP, options=options) as trainer:
        for _ in range(2):
            await trainer.epoch(make_batches())
        assert trainer.estimate(Conditions(volunteers=2)).rounds == 2
    assert_shown(file.getvalue(), 2)


async def test_nothing_is_shown_unless_asked_for(capsys):
    async with make_trainer(make_data()) as trainer:
        await trainer.train_epoch()
    assert capsys.readouterr().out == ""


async def test_hooks_are_told_of_updates_and_epochs():
    updates, epochs = [], []
    hooks = {"watcher": lambda *one: updates.append(one), "on_epoch": epochs.append}
    async with make_trainer(make_data(), **hooks) as trainer:
        await trainer.train_epoch()
    assert (len(updates), len(epochs)) == (3, 1)


def test_estimate_needs_data():
    with pytest.raises(UsageError, match="STO-T004"):
        make_trainer().estimate()
    assert make_trainer(make_data()).estimate().tasks == 3
