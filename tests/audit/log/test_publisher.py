"""Cosigning: after the tiles, before readers see anything, and never without quorum."""

import threading
from collections.abc import Callable
from pathlib import Path

import pytest

from stoilo.audit.format.merkle import Checkpoint, check_consistency
from stoilo.audit.format.note import Note, parse_note, render_note
from stoilo.audit.format.policy import open_checkpoint
from stoilo.audit.log.batching import SequencerSettings
from stoilo.audit.log.publisher import Prove
from stoilo.audit.log.sequencer import Sequencer
from stoilo.audit.read.reader import verify_log
from stoilo.core.errors import UnreachableError
from tests.support.faulty_log import LogKey

Opener = Callable[..., Sequencer]
Refused = Callable[[Sequencer, int, str], None]


@pytest.fixture
def witnessed() -> LogKey:
    return LogKey("log.test/t", witness_time=1_700_000_000)


class WitnessedLog:
    """Signs with the log key alone; the witness's line comes from `cosign`."""

    def __init__(self, key: LogKey) -> None:
        self.key = key
        self.failure: Exception | None = None
        self.asked: list[bytes] = []
        self.proofs: list[tuple[Checkpoint, list[bytes]]] = []

    def sign(self, body: bytes) -> bytes:
        note = parse_note(self.key.sign(body))
        return render_note(Note(body, note.signatures[:1]))

    def cosign(self, note: bytes, prove: Prove) -> bytes:
        self.asked.append(note)
        if self.failure:
            raise self.failure
        full = self.key.sign(parse_note(note).text)
        size = self.open(self.asked[0]).size
        self.proofs.append((self.open(full), prove(size)))
        return full

    def open(self, note: bytes) -> Checkpoint:
        full = self.key.sign(parse_note(note).text)
        return open_checkpoint(full, self.key.policy).checkpoint


def test_checkpoint_is_published_with_its_cosignatures(
    open_log: Opener, witnessed: LogKey, tmp_path: Path
) -> None:
    log_side = WitnessedLog(witnessed)
    options = {"sign": log_side.sign, "policy": witnessed.policy}
    log = open_log(cosign=log_side.cosign, **options)
    log.wait_published(log.append(b"x"), 60)
    signed = open_checkpoint(log.checkpoint(), witnessed.policy)
    assert signed.time == 1_700_000_000
    assert len(parse_note(log_side.asked[0]).signatures) == 1
    assert verify_log(tmp_path / "data", witnessed.policy).witnesses == ("w",)


def test_tiles_are_on_the_disk_when_the_witnesses_are_asked(
    open_log: Opener, tmp_path: Path
) -> None:
    seen: list[bool] = []

    def cosign(note: bytes, prove: Prove) -> bytes:
        log = tmp_path / "data/audit/log"
        tile = log / "tile/0/000.p/1"
        seen.append(tile.exists() and not (log / "checkpoint").exists())
        assert prove(0) == prove(1) == []
        return note

    log = open_log(cosign=cosign)
    log.wait_published(log.append(b"x"), 60)
    assert seen == [True]


def test_proof_shown_to_witnesses_leads_from_what_they_saw(
    open_log: Opener, witnessed: LogKey
) -> None:
    log_side = WitnessedLog(witnessed)
    log = open_log(cosign=log_side.cosign, sign=log_side.sign, policy=witnessed.policy)
    for count in (3, 300, 513):
        log.wait_published(log.append_many([b"%d" % n for n in range(count)])[-1], 60)
    old = log_side.open(log_side.asked[0])
    assert [new.size for new, _ in log_side.proofs] == [3, 300, 513]
    for new, path in log_side.proofs:
        check_consistency(old, new, path)


@pytest.mark.parametrize(
    "failure", [UnreachableError("STO-L010", "no quorum"), TimeoutError("witness")]
)
def test_missing_quorum_publishes_nothing_but_goes_on_acknowledging(
    open_log: Opener,
    witnessed: LogKey,
    tmp_path: Path,
    wait_refused: Refused,
    failure: Exception,
) -> None:
    log_side = WitnessedLog(witnessed)
    log_side.failure = failure
    log = open_log(cosign=log_side.cosign, sign=log_side.sign, policy=witnessed.policy)
    wait_refused(log, log.append(b"one"), "quorum|witness")
    assert log.append(b"two") == 1
    assert not (tmp_path / "data/audit/log/checkpoint").exists()
    log_side.failure = None
    log.wait_published(1, 60)


def test_too_few_cosignatures_publish_nothing(
    open_log: Opener, witnessed: LogKey, tmp_path: Path, wait_refused: Refused
) -> None:
    """The control: a cosigner that adds nothing does not get past the policy."""
    sign = WitnessedLog(witnessed).sign
    log = open_log(cosign=lambda note, _: note, sign=sign, policy=witnessed.policy)
    wait_refused(log, log.append(b"x"), "STO-L013")
    assert not (tmp_path / "data/audit/log/checkpoint").exists()


def test_cosigner_that_returns_another_checkpoint_publishes_nothing(
    open_log: Opener, key: LogKey, tmp_path: Path, wait_refused: Refused
) -> None:
    other = key.sign(b"log.test/t\n0\n47DEQpj8HBSa+/TImW+5JCeuQeRkm5NMpJWZG3hSuFU=\n")
    log = open_log(cosign=lambda _note, _prove: other)
    wait_refused(log, log.append(b"x"), "STO-L054")
    assert not (tmp_path / "data/audit/log/checkpoint").exists()


def test_slow_witness_cannot_publish_after_the_log_was_closed(
    open_log: Opener, tmp_path: Path
) -> None:
    asked, answer = threading.Event(), threading.Event()

    def cosign(note: bytes, _prove: Prove) -> bytes:
        asked.set()
        answer.wait()
        return note

    stuck = open_log(cosign=cosign, settings=SequencerSettings(close_s=0.05))
    stuck.append(b"first")
    asked.wait()
    stuck.close()  # gives up waiting for the witness
    with open_log() as log:
        log.wait_published(log.append(b"second"), 60)
    answer.set()
    stuck._publication._thread.join()
    assert verify_log(tmp_path / "data").size == 2
