"""A coordinator as a process beside a real server and shards: it never holds a vector."""

import asyncio
import subprocess
import sys
import tracemalloc
from pathlib import Path

import msgspec
import pytest

from stoilo import learn
from stoilo.learn.core.models import ArrayModel
from stoilo.learn.core.tensors import flatten
from stoilo.learn.driver.apart import harvest, plant
from stoilo.learn.methods.lbfgs import Rules
from stoilo.learn.methods.sandblaster import SandblasterSettings
from stoilo.learn.trainers.named import SandblasterTrainer
from stoilo.testing.deployment import Deployment
from tests.support.apart import WIDTH, make_bowl_parts, make_valley, valley
from tests.support.handedover import CoordinatorProcess
from tests.support.networkshard import NetworkShard

PROGRAM = Path(__file__).parent / "programs" / "apart.py"
MODEL = ArrayModel(make_valley(), valley)


RULES = Rules(iterations=3)


async def train_near():
    settings = SandblasterSettings(1, 1e-3, shards=2, rules=RULES)
    parts = make_bowl_parts()
    async with SandblasterTrainer(None, MODEL, parts, settings) as trainer:
        return flatten((await trainer.train()).snapshot.parameters)


class Scene:
    """Two shards, and the words of the coordinator's command line."""

    def __init__(self, folder, running, shards):
        self.shards, self.places = shards, tuple(one.place for one in shards)
        self.planted = plant(self.places, MODEL, make_bowl_parts()[0])
        file = folder / "planted.json"
        file.write_bytes(msgspec.json.encode(self.planted))
        self._words = [running.line.connection, folder / "run", file]
        self._files = [one.folder / "connection.json" for one in shards]

    def start(self, hold=0):
        words = [*self._words, hold, *self._files]
        return subprocess.Popen(
            [sys.executable, PROGRAM, *map(str, words)],
            stdout=subprocess.PIPE,
            text=True,
        )

    def run_until(self, number, process):
        for line in process.stdout:
            if line.strip() == str(number):
                return
        raise AssertionError("it ended before")


@pytest.mark.slow
def test_coordinator_holds_less_than_a_range_and_kills_change_no_bit(
    tmp_path, monkeypatch
):
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    with Deployment(tmp_path / "data", volunteers=2) as running:
        more = ("--project", running.line.connection)
        with (
            NetworkShard(tmp_path / "a", more=more) as one,
            NetworkShard(tmp_path / "b", more=more) as other,
        ):
            scene = Scene(tmp_path, running, [one, other])
            with scene.start(hold=4) as killed:
                scene.run_until(4, killed)
                killed.kill()
            with scene.start() as stuck:
                scene.run_until(2, stuck)
                other.kill()
                other.start()
                assert stuck.wait(120) != 0
            with scene.start() as last:
                *_, line = last.stdout
                assert last.wait() == 0
            found = flatten(harvest(scene.places, scene.planted))
    name, peak = line.split()
    assert name == "peak"
    assert int(peak) < WIDTH * 8 // 2
    tracemalloc.start()
    assert found.tobytes() == asyncio.run(train_near()).tobytes()
    # Control: a trainer with vectors is seen to have them.
    assert tracemalloc.get_traced_memory()[1] > 2 * WIDTH * 8
    tracemalloc.stop()


async def hand_over(coordinator, account, places, planted):
    run = await learn.hand_over(
        coordinator.files["ada"], "sandblaster", MODEL, make_bowl_parts(),
        account=account, epochs=3, penalty=1e-3, places=places, planted=planted,
    )  # fmt: skip
    coordinator.kill()
    coordinator.start()
    again = learn.take_up(run.id, coordinator=coordinator.files["ada"])
    return await again.wait(0.5)


@pytest.mark.slow
def test_stoilo_learn_coordinator_trains_what_is_planted_and_has_no_large_file(
    tmp_path,
):
    with Deployment(tmp_path / "data", volunteers=2) as running:
        account = tmp_path / "ada.json"
        words = ["account", "add", "ada", "--data", tmp_path / "data", "--days", "1"]
        words = [*map(str, words), "--connection", str(account)]
        subprocess.run([sys.executable, "-m", "stoilo", *words], check=True)
        more = ("--project", str(account))
        with (
            NetworkShard(tmp_path / "a", more=more) as one,
            NetworkShard(tmp_path / "b", more=more) as other,
            CoordinatorProcess(tmp_path / "state", running.line.connection) as at,
        ):
            places = (one.place, other.place)
            planted = plant(places, MODEL, make_bowl_parts()[0])
            progress = asyncio.run(hand_over(at, account, places, planted))
            assert progress.phase == "ended", progress
            found = flatten(harvest(places, planted))
    kept = [path.stat().st_size for path in (tmp_path / "state").rglob("*")]
    assert max(kept) < WIDTH * 8 // 8
    assert found.tobytes() == asyncio.run(train_near()).tobytes()
