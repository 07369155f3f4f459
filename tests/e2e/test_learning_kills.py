"""A training whose server, trainer and half of the volunteers are killed in mid-epoch.

The outage of the server alone is real and short: some seconds instead of a minute.
"""

import asyncio
import json
import signal
import subprocess
import sys
import time
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import pytest

import stoilo
from stoilo.audit.leaf import LeafKind, parse_leaf
from stoilo.audit.source import open_source
from stoilo.audit.tiles import ENTRIES, decode_bundle, tile_at
from stoilo.client.journal import Journal
from stoilo.testing.deployment import Deployment
from stoilo.testing.descendants import alive, descendants
from stoilo.testing.trainings import KEYS, make_run

PROGRAM = Path(__file__).parent / "programs" / "training.py"
LIMIT_S = 300.0


def wait_until(condition, what):
    end = time.monotonic() + LIMIT_S
    while not condition():
        assert time.monotonic() < end, what
        time.sleep(0.1)


@dataclass
class Scene:
    """A deployment, four volunteers, and a trainer: each its own process."""

    home: Path
    folder: Path = field(init=False)
    deployment: Deployment = field(init=False)
    volunteers: list = field(default_factory=list)
    trainer: subprocess.Popen | None = None
    family: dict = field(default_factory=dict)

    def __enter__(self):
        self.folder = self.home / "run"
        self.deployment = Deployment(self.home / "data")
        self.deployment.start()
        self.volunteers = [
            self.deployment.attach(f"v{n}@example.org", self.home / f"v{n}")
            for n in range(4)
        ]
        return self

    def __exit__(self, *_):
        for process in [*self.volunteers, self.trainer]:
            if process is not None and process.poll() is None:
                process.terminate()
                process.wait(60)
        self.deployment.stop()

    def train(self, hold):
        connection = self.deployment.line.connection
        words = [sys.executable, str(PROGRAM), connection, self.folder, str(hold)]
        with (self.home / "trainer.log").open("ab") as log:
            self.trainer = subprocess.Popen(words, stdout=log, stderr=log)

    def keys(self):
        """Return the keys that the history tells of, as far as it was saved."""
        path, history = self.folder / "run.json", self.folder / "history.jsonl"
        if not history.exists() or not path.exists():
            return []
        size = json.loads(path.read_bytes())["state"]["history"]["bytes"]
        lines = history.read_bytes()[:size].splitlines()
        return [json.loads(line)["key"] for line in lines]

    def wait_for(self, updates):
        wait_until(
            lambda: self.trainer.poll() is not None or len(self.keys()) >= updates,
            f"{updates} updates",
        )
        assert self.trainer.poll() is None, (self.home / "trainer.log").read_text()

    def strike(self):
        """Kill server, trainer and two volunteers at one moment."""
        struck = [self.trainer, *self.volunteers[:2]]
        for process in struck:
            self.family |= descendants(process.pid)
        self.family |= descendants(self.deployment.pid)
        self.deployment.process.send_signal(signal.SIGKILL)
        for process in struck:
            process.kill()
        self.deployment.kill()
        for process in struck:
            process.wait()

    def leaves(self):
        """Return how many leaves of work the published log has."""
        source = open_source(self.deployment.line.http)
        size = int((source.checkpoint() or b"").split(b"\n")[1])
        found = []
        for number in range(-(-size // 256)):
            tile = tile_at(ENTRIES, number, size)
            found += decode_bundle(source.tile(tile) or b"", tile.width)
        return Counter(parse_leaf(leaf).kind for leaf in found)[LeafKind.WORKUNIT]


async def read_attempts(scene):
    """Return task → its attempts' leaves, for each task of the training."""
    journal = Journal(scene.home / "journal")
    connection = scene.deployment.line.connection
    async with stoilo.connect(connection, journal=journal) as conn:
        tasks = {entry.task_id for entry in conn.recent_tasks(1000)}
        found = [await conn.restore_task(task).status() for task in tasks]
    return {(s.task_id, s.attempt): s.log_index for s in found}


@dataclass(frozen=True)
class Outcome:
    """What the killed training left behind."""

    scene: Scene
    told: list  # keys of the updates that were saved at the kill
    keys: list
    attempts: dict
    leaves: int
    after_another: dict  # attempts when a trainer had begun in another folder


@pytest.fixture(scope="module")
def killed(tmp_path_factory):
    with Scene(tmp_path_factory.mktemp("kills")) as scene:
        scene.train(hold=12)
        scene.wait_for(2)
        scene.deployment.kill()
        time.sleep(3)  # the outage itself
        scene.deployment.start()
        scene.wait_for(6)
        scene.strike()
        told = scene.keys()
        scene.deployment.start()
        scene.train(hold=0)
        assert scene.trainer.wait(LIMIT_S) == 0
        found = scene.keys(), asyncio.run(read_attempts(scene)), scene.leaves()
        scene.folder = scene.home / "another"
        scene.train(hold=1)
        scene.wait_for(1)
        yield Outcome(scene, told, *found, asyncio.run(read_attempts(scene)))


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_kill_of_server_trainer_and_half_of_the_volunteers_loses_nothing(killed):
    assert len(killed.told) < len(KEYS)
    assert killed.keys[: len(killed.told)] == killed.told
    assert sorted(killed.keys) == sorted(KEYS)
    wait_until(lambda: not alive(killed.scene.family), "the killed end")


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_killed_training_ends_as_one_that_nobody_disturbed(killed, tmp_path):
    async def train(folder):
        async with make_run(folder) as run, run.backend:
            return (await run.finish()).parameters["w"]

    expected = asyncio.run(train(tmp_path))
    found = asyncio.run(train(killed.scene.home / "run"))  # nothing is left to do
    np.testing.assert_allclose(found, expected, rtol=0, atol=1e-12)


def tasks(attempts):
    return {task for task, _ in attempts}


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_every_piece_of_work_is_one_task_and_every_attempt_one_leaf(killed):
    attempts = killed.attempts
    assert len(tasks(attempts)) == len(KEYS)
    assert len(set(attempts.values())) == len(attempts)
    assert killed.leaves == sum(attempt for _, attempt in attempts)


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_trainer_without_the_checkpoint_would_order_its_work_again(killed):
    assert len(tasks(killed.after_another)) > len(KEYS)
