"""A clock that runs backwards neither stops nor bends the log."""

import time
from collections.abc import Callable
from pathlib import Path

import pytest

from stoilo.audit.format.policy import parse_policy
from stoilo.audit.format.proof import Leaf, LeafKind, check_proof, render_leaf
from stoilo.audit.log.fsck import fsck_log
from stoilo.audit.log.sequencer import Sequencer
from stoilo.audit.read.reader import verify_log
from stoilo.audit.witness.client import Cosigner, CosignSettings
from stoilo.core.digests import content_digest
from stoilo.core.errors import WaitError
from tests.support.faulty_log import LogKey
from tests.support.local_witness import LocalWitness

Opener = Callable[..., Sequencer]
Refused = Callable[[Sequencer, int, str], None]
DAY = 86_400
NOW = 1_800_000_000


class Clock:
    """A clock that a test sets."""

    def __init__(self) -> None:
        self.now = NOW

    def __call__(self) -> int:
        return self.now


class WitnessedLog:
    """A log, its witness, and a clock of each."""

    def __init__(self, tmp_path: Path, key: LogKey) -> None:
        self.server, self.witness_clock = Clock(), Clock()
        self.witness = LocalWitness(
            tmp_path / "witness", "witness.test/w", key, self.witness_clock
        )
        text = (
            f"log {key.vkey}\nwitness w {self.witness.key.vkey} http://w/\nquorum w\n"
        )
        self.policy = parse_policy(text.encode())
        self.cosigner = Cosigner(
            self.policy,
            settings=CosignSettings(timeout_s=1, linger_s=0),
            clock=self.server,
            wire=lambda _: self.witness,
        )

    def close(self) -> None:
        self.cosigner.close()
        self.witness.store.close()


@pytest.fixture
def witnessed(tmp_path: Path, key: LogKey):
    made = WitnessedLog(tmp_path, key)
    yield made
    made.close()


def test_witness_whose_clock_falls_back_cosigns_once_it_is_right(
    open_log: Opener, tmp_path: Path, witnessed: WitnessedLog, wait_refused: Refused
) -> None:
    """No cosignature is older than the one before; appends are acknowledged meanwhile."""
    with open_log(policy=witnessed.policy, cosign=witnessed.cosigner) as log:
        log.wait_published(log.append(b"today"), 60)
        witnessed.server.now = witnessed.witness_clock.now = NOW - 400 * DAY
        index = log.append(b"last year")
        wait_refused(log, index, "STO-L108")
        witnessed.server.now = witnessed.witness_clock.now = NOW + 1
        log.wait_published(index, 60)
        check_proof(log.proof(index), b"last year", witnessed.policy)
    report = verify_log(tmp_path / "data", witnessed.policy)
    assert (report.size, report.checkpoint_time) == (2, NOW + 1)
    assert fsck_log(tmp_path / "data", witnessed.policy).findings == ()


def test_server_whose_clock_alone_falls_back_publishes_once_it_is_right(
    open_log: Opener, witnessed: WitnessedLog
) -> None:
    with open_log(policy=witnessed.policy, cosign=witnessed.cosigner) as log:
        witnessed.server.now = NOW - 400 * DAY
        index = log.append(b"acknowledged all the same")
        with pytest.raises(WaitError, match="STO-L056"):
            log.wait_published(index, 0.3)
        witnessed.server.now = NOW
        log.wait_published(index, 60)


def test_leaves_keep_their_order_when_their_times_fall(
    open_log: Opener, tmp_path: Path, key: LogKey
) -> None:
    leaves = [
        render_leaf(Leaf(LeafKind.ADMISSION, content_digest(b"%d" % n), "1", NOW - n))
        for n in range(300)
    ]
    with open_log() as log:
        assert log.append_many(leaves) == list(range(300))
        log.wait_published(299, 60)
    with open_log() as log:
        assert log.append_many(leaves) == list(range(300))
    assert fsck_log(tmp_path / "data", key.policy).findings == ()


def test_pace_does_not_hang_on_the_wall_clock(
    open_log: Opener, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Every reading of the wall clock is earlier than the one before."""
    readings = iter(range(NOW, 0, -DAY))
    monkeypatch.setattr(time, "time", lambda: float(next(readings)))
    with open_log() as log:
        for number in range(20):
            log.wait_published(log.append(b"%d" % number), 60)
