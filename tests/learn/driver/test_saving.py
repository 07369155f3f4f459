"""What a save costs, where it happens, what it is of, and what a kill leaves of it."""

import asyncio
import json
import subprocess
import sys
import threading
from pathlib import Path

import numpy as np
import pytest

from stoilo.core.errors import InternalError, TrustError, UsageError
from stoilo.learn.backends.local import LocalBackend
from stoilo.learn.core.checkpoint import Checkpoint
from stoilo.learn.core.data import split
from stoilo.learn.core.models import ArrayModel
from stoilo.learn.driver.run import Run, RunSettings
from stoilo.learn.methods.base import LocalWork
from stoilo.learn.methods.optimizers import Adagrad, Adam, Sgd
from stoilo.learn.methods.synchronous import Synchronous, SynchronousSettings
from stoilo.learn.methods.vcasgd import Vcasgd, VcasgdSettings
from tests.support.trainings import KEYS, make_run, squares

STEP = 4
"""Answers that make a step of the training that is killed."""
IMAGES = slice(0, 60, 3)
"""The moments at which it is killed: before, at and after a step's end."""
PROGRAM = Path(__file__).parents[1] / "programs" / "photographed.py"


def make_large(folder, width=8192, tasks=16):
    rng = np.random.default_rng(0)
    model = ArrayModel({"w": np.zeros(width)}, squares)
    parts = split(rng.normal(size=(tasks, width)), rng.normal(size=tasks), tasks)
    settings = SynchronousSettings(epochs=3)
    method = Synchronous(model.first(), [1] * tasks, Adam(1e-3), settings)
    how = RunSettings(folder=folder, in_flight=tasks)
    return Run(method, model, parts, LocalBackend(1), how)


async def test_step_of_16_tasks_writes_its_replies_once(tmp_path):
    size, whole = 8192 * 8, 0
    async with make_large(tmp_path) as run, run.backend:
        checkpoint = run._saving.checkpoint
        for _ in range(16):
            await run.step()
        before = checkpoint.written_bytes
        for _ in range(16):
            await run.step()
            whole += sum(a.nbytes for a in run.method.save().tensors.values())
        written = checkpoint.written_bytes - before
    # 15 replies, the new version, and Adam's two arrays; the last reply is in these
    assert 18 * size <= written < 1.1 * 18 * size
    assert whole > 8 * written  # what writing everything each time would come to


async def test_folder_holds_what_the_state_names_and_no_more(tmp_path):
    async with make_large(tmp_path, width=1024) as run, run.backend:
        for _ in range(40):
            await run.step()
        saved = await asyncio.to_thread(run.method.save)
        held = sum(a.nbytes for a in saved.tensors.values())
    on_disk = sum(f.stat().st_size for f in (tmp_path / "arrays").iterdir())
    assert on_disk < 1.2 * held + 3 * 8192


class Held(Checkpoint):
    """A disk that takes nothing until the event loop has moved."""

    moved = threading.Event()

    def write(self, state, lines=None):
        assert self.moved.wait(60)
        super().write(state, lines)


async def test_event_loop_moves_while_the_disk_writes(tmp_path):
    async with make_run(tmp_path) as run, run.backend:
        run._saving.checkpoint = Held(tmp_path)
        asyncio.get_running_loop().call_later(0.01, Held.moved.set)
        assert (await run.step()).applied


async def test_update_whose_save_failed_is_told_by_the_next_step(tmp_path):
    run = make_run(tmp_path)
    async with run.backend:
        await run.start()
        first = await run.step()
        (tmp_path / "run.json.new").mkdir()
        with pytest.raises(InternalError, match="STO-T022"):
            await run.step()
        (tmp_path / "run.json.new").rmdir()
        rest = [update async for update in run.updates()]
        await run.close()
    assert {first.key, *(u.key for u in rest)} == KEYS
    assert len(rest) + 1 == len(KEYS)


async def test_history_tally_and_epochs_are_taken_up_again(tmp_path):
    killed = make_run(tmp_path)
    async with killed.backend:
        await killed.start()
        for _ in range(9):
            await killed.step()
    async with make_run(tmp_path) as run, run.backend:
        assert run.history.updates == killed.history.updates
        assert run.tally.received_bytes == killed.tally.received_bytes
        await run.finish()
    assert sum(one.samples for one in run.history.updates) == 64


async def test_history_that_is_shorter_than_saved_is_refused(tmp_path):
    async with make_run(tmp_path) as run, run.backend:
        await run.step()
    (tmp_path / "history.jsonl").write_bytes(b"")
    with pytest.raises(TrustError, match="STO-T011"):
        await make_run(tmp_path).start()


CHANGES = {
    "settings.block": {"block": 2},
    "settings.seed": {"seed": 5},
    "optimizer": {"optimizer": Adagrad(0.1)},
    "optimizer.rate": {"optimizer": Sgd(0.2)},
    "parameters": {"width": 3},
    "data": {"noise": 1.0},
    "method": {"method": "Vcasgd"},
}


def make_changed(folder, width=2, noise=0.0, optimizer=None, method="", **settings):
    model = ArrayModel({"w": np.zeros(width)}, squares)
    x = np.arange(12.0).reshape(6, 2)[:, [0] * width]
    parts = split(x, np.ones(6) + noise, 2)
    chosen = SynchronousSettings(**{"epochs": 2, "block": 1, **settings})
    made = Synchronous(model.first(), [3, 3], optimizer or Sgd(0.1), chosen)
    if method:
        local = VcasgdSettings(2, LocalWork(rate=0.1))
        made = Vcasgd(model.first(), [3, 3], local)
    return Run(made, model, parts, LocalBackend(1), RunSettings(folder=folder))


@pytest.mark.parametrize("name", CHANGES)
async def test_folder_of_another_training_is_refused_by_name_and_kept(tmp_path, name):
    async with make_changed(tmp_path) as run, run.backend:
        await run.step()
    before = (tmp_path / "run.json").read_bytes()
    other = make_changed(tmp_path, **CHANGES[name])
    async with other.backend:
        with pytest.raises(UsageError, match=rf" {name}.* was .*STO-T012"):
            await other.start()
        await other.close()
    assert (tmp_path / "run.json").read_bytes() == before


async def test_folder_of_the_same_training_is_taken_up(tmp_path):
    for updates in (1, 2):
        async with make_changed(tmp_path) as run, run.backend:
            await run.step()
        assert len(run.history) == updates


def told_by(folder):
    lines = (folder / "history.jsonl").read_text().splitlines()
    return [json.loads(line)["key"] for line in lines]


async def train(folder):
    async with make_run(folder) as run, run.backend:
        end = await run.finish()
    return end.parameters["w"], told_by(folder)


@pytest.mark.slow
async def test_kill_before_any_change_of_a_file_loses_and_doubles_nothing(tmp_path):
    folder, images = tmp_path / "run", tmp_path / "images"
    folder.mkdir()
    command = [sys.executable, str(PROGRAM), str(folder), str(images)]
    await asyncio.to_thread(subprocess.run, command, check=True, timeout=120)
    w, keys = await train(tmp_path / "undisturbed")
    assert sorted(keys) == sorted(KEYS)
    found = sorted(images.iterdir())
    assert len(found) > 5 * len(KEYS)
    ahead = 0
    for image in found[IMAGES]:
        ahead += is_ahead(image)
        after, told = await train(image)
        np.testing.assert_array_equal(after, w)
        assert sorted(told) == sorted(KEYS)
    assert ahead  # there was something to be cut off
    assert len(told_by(found[IMAGES.stop])) > STEP  # a step's end is among them


def is_ahead(image):
    """Return whether the history is longer than the checkpoint counts on."""
    path = image / "run.json"
    if not path.exists():
        return False
    counted = json.loads(path.read_bytes())["state"]["run"]["history"]
    history = image / "history.jsonl"
    return history.exists() and history.stat().st_size > counted
