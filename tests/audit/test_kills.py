"""kill -9 of a real writer: what was acknowledged stays, and nothing is forked."""

import random
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from stoilo.audit.fakes import DURABLE_STEPS, LogKey
from stoilo.audit.merkle import check_consistency, consistency_proof
from stoilo.audit.nodes import TileNodes
from stoilo.audit.policy import open_checkpoint
from stoilo.audit.reader import verify_log
from stoilo.audit.sequencer import Sequencer

Opener = Callable[..., Sequencer]
WRITER = Path(__file__).parent / "programs" / "log_writer.py"


class KilledLog:
    """A log whose writer is started and killed again and again."""

    def __init__(self, data_dir: Path) -> None:
        self.data_dir = data_dir
        self.acknowledged: dict[int, int] = {}
        self.next_number = 0
        self.checkpoints: list[bytes] = []

    def run(self, seconds: float | None, *fault: str) -> int:
        """Run a writer until it dies, or kill it `seconds` after it is ready."""
        start = [sys.executable, str(WRITER), str(self.data_dir), str(self.next_number)]
        with subprocess.Popen([*start, *fault], stdout=subprocess.PIPE) as process:
            assert process.stdout is not None
            if seconds is not None:
                assert process.stdout.readline() == b"ready\n"
                time.sleep(seconds)
                process.kill()
            lines = process.stdout.read().splitlines(keepends=True)
        self._note(lines)
        return process.returncode

    def _note(self, lines: list[bytes]) -> None:
        for line in lines:
            if line.endswith(b"\n") and line != b"ready\n":
                number, index = map(int, line.split())
                assert self.acknowledged.setdefault(number, index) == index
        self.next_number = max(self.acknowledged, default=-1) + 1
        checkpoint = self.data_dir / "audit/log/checkpoint"
        if checkpoint.exists():
            self.checkpoints.append(checkpoint.read_bytes())

    def check(self, open_log: Opener, key: LogKey) -> None:
        """Count from outside: nothing lost, nothing twice, every checkpoint extended."""
        indices = list(self.acknowledged.values())
        assert len(indices) == len(set(indices))
        with open_log(self.data_dir) as log:
            for number, index in self.acknowledged.items():
                assert log.leaf(index) == b"leaf %d" % number
                assert index in log.find_label(f"task-{number}")
            size = log.size
            if size:
                log.wait_published(size - 1, 10)
                self._check_history(log, key, size)
        if size:
            assert verify_log(self.data_dir, key.policy).size == size

    def _check_history(self, log: Sequencer, key: LogKey, size: int) -> None:
        nodes = TileNodes(log._store.read_tile)
        newest = open_checkpoint(log.checkpoint(), key.policy).checkpoint
        for note in self.checkpoints:
            old = open_checkpoint(note, key.policy).checkpoint
            path = consistency_proof(
                old.size, size, lambda level, index: nodes.node(level, index, size)
            )
            check_consistency(old.size, old.root, newest.size, newest.root, path)


def test_writer_killed_at_random_moments_loses_nothing(
    tmp_path: Path, open_log: Opener, key: LogKey
) -> None:
    killed, chance = KilledLog(tmp_path / "data"), random.Random(1)
    for _ in range(3):
        killed.run(chance.uniform(0.0, 0.1))
    assert killed.acknowledged
    killed.check(open_log, key)


@pytest.mark.parametrize("step", ["commit", "swap_head", "write_checkpoint"])
def test_writer_killed_at_a_step_loses_nothing(
    tmp_path: Path, open_log: Opener, key: LogKey, step: str
) -> None:
    killed = KilledLog(tmp_path / "data")
    assert killed.run(None, step, "3", "1") == -9
    killed.check(open_log, key)


@pytest.mark.slow
def test_writer_killed_at_every_step_loses_nothing(
    tmp_path: Path, open_log: Opener, key: LogKey
) -> None:
    """Before and after each durable step, early and late: 34 kills of one growing log."""
    killed, kills = KilledLog(tmp_path / "data"), 0
    for step in DURABLE_STEPS:
        if step == "move_tail":  # needs thousands of leaves; see test_logdb
            continue
        once = step in {"create_log", "create_head", "write_policy"}
        for call in ["1"] if once else ["1", "7"]:
            for persisted in ("0", "1"):
                if once:
                    killed = KilledLog(tmp_path / f"{step}-{persisted}")
                seconds = None if once or step != "drop_partials" else 5.0
                code = killed.run(seconds, step, call, persisted)
                assert code == -9, (step, call, persisted)
                kills += 1
                killed.check(open_log, key)
    assert kills >= 20


@pytest.mark.slow
def test_writer_killed_thirty_times_at_random_moments_loses_nothing(
    tmp_path: Path, open_log: Opener, key: LogKey
) -> None:
    killed, chance = KilledLog(tmp_path / "data"), random.Random(2)
    for turn in range(30):
        killed.run(chance.uniform(0.0, 0.4))
        if turn % 5 == 0:
            killed.check(open_log, key)
    killed.check(open_log, key)
    assert len(killed.acknowledged) > 1000
