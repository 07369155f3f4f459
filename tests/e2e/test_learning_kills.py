"""A training whose server, trainer and half of the volunteers are killed in mid-epoch.

Beforehand the server alone is away for 3 s under a trainer that lives. After the kill it stays
away for a real minute, in the middle of which the trainer is started again.
"""

import asyncio
import json
import signal
import subprocess
import sys
import time
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import pytest

import stoilo
from stoilo.client.session import Journal
from stoilo.testing.deployment import Deployment
from tests.support.descendants import alive, descendants
from tests.support.traces import count_work_leaves, read_copies, successes
from tests.support.trainings import EPOCHS, KEYS, make_run

PROGRAM = Path(__file__).parent / "programs" / "training.py"
LIMIT_S = 300.0
OUTAGE_S = 60.0
VICTIMS = {"v0@example.org", "v1@example.org"}
EPOCH = len(KEYS) // EPOCHS


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
                process.send_signal(signal.SIGCONT)
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
        size = json.loads(path.read_bytes())["state"]["run"]["history"]
        lines = history.read_bytes()[:size].splitlines()
        return [json.loads(line)["key"] for line in lines]

    def wait_for(self, updates):
        wait_until(
            lambda: self.trainer.poll() is not None or len(self.keys()) >= updates,
            f"{updates} updates",
        )
        assert self.trainer.poll() is None, (self.home / "trainer.log").read_text()

    def flights(self):
        """Return the keys of the orders that were out at the last save."""
        state = json.loads((self.folder / "run.json").read_bytes())["state"]
        return [flight["row"]["key"] for flight in state["flights"]["flights"]]

    def struck(self):
        """Return whom a strike kills beside the server."""
        return [self.trainer, *self.volunteers[:2]]

    def copies(self):
        return read_copies(self.deployment.data)

    def corner(self):
        """Stop those who will be struck, if that leaves them with work; else let them go.

        A copy is then in a victim's hands, and another task is done that the trainer has
        not used, or will be by the volunteers who live; all of it within an epoch.
        """
        if len(self.keys()) <= 4:
            return False
        for process in self.struck():
            process.send_signal(signal.SIGSTOP)
        held = {copy.workunit for copy in in_hand(self.copies()) if is_victims(copy)}
        known = {copy.workunit for copy in self.copies()}
        is_good = held and len(known - held) > len(self.keys()) and self.is_within()
        for process in self.struck() if not is_good else ():
            process.send_signal(signal.SIGCONT)
        return is_good

    def is_within(self):
        return len(self.keys()) % EPOCH != 0

    def is_ripe(self):
        """Say whether all is done that the living have, and some of it not yet used."""
        copies = self.copies()
        unsent = any(copy.state == "unsent" for copy in copies)
        rest = [copy for copy in in_hand(copies) if not is_victims(copy)]
        return not unsent and not rest and len(successes(copies)) > len(self.keys())

    def strike(self):
        """Kill server, trainer and two volunteers at one moment."""
        for process in self.struck():
            self.family |= descendants(process.pid)
        self.family |= descendants(self.deployment.pid)
        self.deployment.process.send_signal(signal.SIGKILL)
        for process in self.struck():
            process.kill()
        self.deployment.kill()
        for process in self.struck():
            process.wait()

    def return_after(self, outage_s):
        """Start the trainer in the middle of the outage, and the server after it."""
        time.sleep(outage_s / 2)
        self.train(hold=0)
        time.sleep(outage_s / 2)
        assert self.trainer.poll() is None, (self.home / "trainer.log").read_text()
        self.deployment.start()


def in_hand(copies):
    return [copy for copy in copies if copy.state == "in_progress"]


def is_victims(copy):
    return copy.email in VICTIMS


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
    flights: list  # of the orders that were out then
    copies: list  # at the engine then
    keys: list
    attempts: dict
    leaves: int
    copies_after: list
    after_another: dict  # attempts when a trainer had begun in another folder


@pytest.fixture(scope="module")
def killed(tmp_path_factory):
    with Scene(tmp_path_factory.mktemp("kills")) as scene:
        scene.train(hold=14)
        scene.wait_for(2)
        scene.deployment.kill()
        time.sleep(3)  # the outage itself
        scene.deployment.start()
        wait_until(scene.corner, "work in a victim's hands")
        wait_until(scene.is_ripe, "a result that the trainer has not used")
        scene.strike()
        then = scene.keys(), scene.flights(), scene.copies()
        scene.return_after(OUTAGE_S)
        assert scene.trainer.wait(LIMIT_S) == 0
        attempts = asyncio.run(read_attempts(scene))
        leaves = count_work_leaves(scene.deployment.line.http)
        found = scene.keys(), attempts, leaves, scene.copies()
        scene.folder = scene.home / "another"
        scene.train(hold=1)
        scene.wait_for(1)
        yield Outcome(scene, *then, *found, asyncio.run(read_attempts(scene)))


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_kill_comes_within_an_epoch_while_tasks_are_in_flight(killed):
    assert len(killed.told) % EPOCH != 0
    assert set(killed.flights).isdisjoint(killed.told)
    assert killed.flights
    assert any(is_victims(copy) for copy in in_hand(killed.copies))


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_result_acknowledged_before_the_kill_is_used_and_not_computed_again(killed):
    acknowledged = successes(killed.copies)
    assert len(acknowledged) > len(killed.told)  # one at least was not used by then
    known = {copy.name for copy in killed.copies}
    again = [copy for copy in killed.copies_after if copy.name not in known]
    assert again  # of those whom the kill struck
    assert acknowledged.keys().isdisjoint(copy.workunit for copy in again)


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_each_task_of_the_killed_training_came_back_computed_once(killed):
    done = successes(killed.copies_after)
    assert done.keys() == {f"{task}_{last}" for task, last in killed.attempts}
    assert len(done) == len(KEYS)
    assert all(len(copies) == 1 for copies in done.values())


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
