"""kill -9 of a real writer: what was acknowledged stays, and nothing is forked.

The writer has a real witness, killed with it: it would refuse to cosign a fork.
"""

import base64
import random
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from stoilo.audit.format.merkle import check_consistency, consistency_proof
from stoilo.audit.format.policy import open_checkpoint
from stoilo.audit.format.tiles import TileNodes
from stoilo.audit.log.fsck import fsck_log
from stoilo.audit.log.sequencer import Sequencer
from stoilo.audit.read.reader import verify_log
from stoilo.core.errors import TrustError
from tests.support.faulty_log import DURABLE_STEPS, REMOTE_STEPS, LogKey

Opener = Callable[..., Sequencer]
WRITER = Path(__file__).parent / "programs" / "log_writer.py"
ROUNDS = 100


class KilledLog:
    """A log whose writer is started and killed again and again."""

    def __init__(self, data_dir: Path) -> None:
        self.data_dir = data_dir
        self.acknowledged: dict[int, int] = {}
        self.next_number = 0
        self.checkpoints: list[bytes] = []
        self.roots: dict[bytes, bytes] = {}

    def run(self, seconds: float | None, *fault: str, since: bytes = b"ready\n") -> int:
        """Run a writer until it dies, or kill it `seconds` after it says `since`."""
        start = [sys.executable, str(WRITER), str(self.data_dir), str(self.next_number)]
        with subprocess.Popen([*start, *fault], stdout=subprocess.PIPE) as process:
            assert process.stdout is not None
            lines: list[bytes] = []
            if seconds is not None:
                while not lines or lines[-1] not in {since, b""}:
                    lines.append(process.stdout.readline())
                assert lines[-1] == since
                time.sleep(seconds)
                process.kill()
            lines += process.stdout.read().splitlines(keepends=True)
        self._note(lines)
        return process.returncode

    def _note(self, lines: list[bytes]) -> None:
        for line in lines:
            if not line.endswith(b"\n") or line in {b"ready\n", b"opening\n"}:
                continue
            if line.startswith(b"signed "):
                _, size, root, _ = base64.b64decode(line[7:]).split(b"\n")
                assert self.roots.setdefault(size, root) == root, "two roots of a size"
                continue
            number, index = map(int, line.split())
            assert self.acknowledged.setdefault(number, index) == index
        self.next_number = max(self.acknowledged, default=-1) + 1
        checkpoint = self.data_dir / "audit/log/checkpoint"
        if checkpoint.exists():
            self.checkpoints.append(checkpoint.read_bytes())

    def check_at_rest(self, key: LogKey) -> None:
        """Look at what the kill left, before anything goes on from it."""
        if (self.data_dir / "audit/log.sqlite").exists():
            report = fsck_log(self.data_dir, key.policy)
            assert report.is_sound, [str(one) for one in report.findings]
            assert report.size + (report.unpublished or 0) >= len(self.acknowledged)

    def check(self, open_log: Opener, key: LogKey) -> None:
        """Count from outside: nothing lost, nothing twice, every checkpoint extended."""
        self.check_at_rest(key)
        indices = list(self.acknowledged.values())
        assert len(indices) == len(set(indices))
        with open_log(self.data_dir) as log:
            for number, index in self.acknowledged.items():
                assert log.leaf(index) == b"leaf %d" % number
                assert index in log.find_label(f"task-{number}")
            size = log.size
            assert len({log.leaf(index) for index in range(size)}) == size
            if size:
                log.wait_published(size - 1, 60)
                self._check_history(log, key, size)
        if size:
            assert verify_log(self.data_dir, key.policy).size == size

    def _check_history(self, log: Sequencer, key: LogKey, size: int) -> None:
        nodes = TileNodes(log._store.read_tile)
        newest = open_checkpoint(log.checkpoint(), key.policy).checkpoint
        for note in set(self.checkpoints):
            old = open_checkpoint(note, key.policy).checkpoint
            path = consistency_proof(
                old.size, size, lambda level, index: nodes.node(level, index, size)
            )
            check_consistency(old, newest, path)


def test_writer_killed_at_random_moments_loses_nothing(
    tmp_path: Path, open_log: Opener, key: LogKey
) -> None:
    killed, chance = KilledLog(tmp_path / "data"), random.Random(1)
    for _ in range(3):
        killed.run(chance.uniform(0.0, 0.1))
    assert killed.acknowledged
    killed.check(open_log, key)


@pytest.mark.parametrize("step", ["commit", "swap_head", "write_checkpoint", "cosign"])
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
    """Before and after each step, early and late, mostly in one growing log."""
    killed, kills = KilledLog(tmp_path / "data"), 0
    for step in (*DURABLE_STEPS, *REMOTE_STEPS):
        if step == "move_tail":  # needs thousands of leaves; see test_syscalls
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
@pytest.mark.timeout(600)
def test_writer_killed_a_hundred_times_loses_nothing(
    tmp_path: Path, open_log: Opener, key: LogKey
) -> None:
    """One growing log; each fourth kill strikes while it is being opened."""
    killed, chance = KilledLog(tmp_path / "data"), random.Random(2)
    for turn in range(ROUNDS):
        if turn % 4 == 3:
            killed.run(chance.uniform(0.0, 0.03), since=b"opening\n")
        else:
            killed.run(chance.uniform(0.0, 0.2))
        if turn % 5 == 0:
            killed.check_at_rest(key)
        if turn % 20 == 0:
            killed.check(open_log, key)
    killed.check(open_log, key)
    assert len(killed.acknowledged) > 500


def test_lost_leaf_fails_the_check(
    tmp_path: Path, open_log: Opener, key: LogKey
) -> None:
    """The negative control: a leaf that was acknowledged and is gone is found out."""
    killed = KilledLog(tmp_path / "data")
    killed.run(0.1)
    killed.acknowledged[10_000_000] = len(killed.acknowledged) + 100
    with pytest.raises((AssertionError, TrustError)):
        killed.check(open_log, key)
