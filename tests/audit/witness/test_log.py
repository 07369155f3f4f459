"""The real log with real witnesses behind it: what is published, when, and what is not."""

import shutil
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from stoilo.audit.format.note import parse_vkey
from stoilo.audit.format.policy import LogPolicy, Witness, open_checkpoint
from stoilo.audit.format.proof import check_proof
from stoilo.audit.log.batching import SequencerSettings
from stoilo.audit.log.sequencer import Sequencer
from stoilo.audit.read.reader import verify_log
from stoilo.audit.witness.client import Cosigner, CosignSettings
from stoilo.core.errors import InternalError, TrustError, WaitError
from tests.support.faulty_log import Fault, FaultKind, FaultyStore, LogKey
from tests.support.local_witness import LocalWitness

Refused = Callable[[Sequencer, int, str], None]
ORIGIN = "log.test/t"
PACE = SequencerSettings(retry_s=0.05, close_s=2)


class Place:
    """A data directory, its witness, and the log as it is opened again and again."""

    def __init__(self, data: Path, key: LogKey, witness: LocalWitness) -> None:
        self.data, self.key, self.witness = data, key, witness
        named = Witness("w", witness.key.verifier, "http://w/")
        self.policy = LogPolicy((parse_vkey(key.vkey),), (named,), (), "w")
        self.closing: list[Sequencer | Cosigner] = []

    def open(
        self, *, witnessed: bool = True, store: FaultyStore | None = None
    ) -> Sequencer:
        cosigner = Cosigner(
            self.policy,
            settings=CosignSettings(timeout_s=30),
            wire=lambda _: self.witness,
        )
        log = Sequencer.open(
            self.data,
            ORIGIN,
            self.key.sign,
            policy=self.policy if witnessed else replace(self.policy, quorum="none"),
            cosign=cosigner if witnessed else None,
            store=store,
            settings=PACE,
        )
        self.closing += [log, cosigner]
        return log


@pytest.fixture
def place(
    tmp_path: Path, key: LogKey, make_witness: Callable[..., LocalWitness]
) -> Iterator[Place]:
    one = Place(tmp_path / "data", key, make_witness())
    yield one
    for each in one.closing:
        each.close()


def append(log: Sequencer, *texts: bytes) -> int:
    return log.append_many(list(texts))[-1]


def test_published_checkpoint_and_proofs_carry_the_cosignature(place: Place) -> None:
    with place.open() as log:
        index = append(log, b"a", b"b")
        log.wait_published(index, 60)
        proven = check_proof(log.proof(index), b"b", place.policy)
    assert proven.checkpoint_time
    assert verify_log(place.data, place.policy).witnesses == ("w",)


def test_without_its_witness_a_log_acknowledges_but_publishes_nothing(
    place: Place, wait_refused: Refused
) -> None:
    with place.open() as log:
        log.wait_published(append(log, b"a"), 60)
        place.witness.dead = True
        index = append(log, b"b")
        wait_refused(log, index, "STO-L058")
        assert (log.size, log.published_size) == (2, 1)
        assert open_checkpoint(log.checkpoint(), place.policy).checkpoint.size == 1
        place.witness.dead = False
        log.wait_published(index, 60)


def test_leaves_that_waited_for_a_witness_survive_a_restart(place: Place) -> None:
    with place.open() as log:
        place.witness.dead = True
        append(log, *(b"%d" % n for n in range(300)))
    place.witness.dead = False
    with place.open() as log:
        log.wait_published(299, 60)
        assert open_checkpoint(log.checkpoint(), place.policy).witnesses == {"w"}


def test_log_begun_without_witnesses_is_published_again_with_them(
    place: Place,
) -> None:
    with place.open(witnessed=False) as log:
        log.wait_published(append(log, b"a", b"b"), 60)
    with pytest.raises(TrustError, match="STO-L013"):
        verify_log(place.data, place.policy)  # control: it is not cosigned yet
    with place.open() as log:
        log.wait_published(1, 60)
        assert check_proof(log.proof(0), b"a", place.policy).size == 2
    assert verify_log(place.data, place.policy).witnesses == ("w",)


def test_no_proof_is_given_under_a_checkpoint_that_lacks_its_witnesses(
    place: Place,
) -> None:
    with place.open(witnessed=False) as log:
        log.wait_published(append(log, b"a"), 60)
    place.witness.dead = True
    with place.open() as log, pytest.raises(WaitError, match="STO-L056"):
        log.proof(0)


def test_backup_of_everything_is_noticed_by_the_witness(
    place: Place, tmp_path: Path, wait_refused: Refused
) -> None:
    """All parts restored together agree with each other: only others remember."""
    with place.open() as log:
        log.wait_published(append(log, b"a", b"b"), 60)
    shutil.copytree(place.data, tmp_path / "backup")
    with place.open() as log:
        log.wait_published(append(log, b"c", b"d"), 60)
    shutil.rmtree(place.data)
    shutil.copytree(tmp_path / "backup", place.data)
    with place.open() as log:
        wait_refused(log, append(log, b"x"), "STO-L103")
        wait_refused(log, append(log, b"y", b"z"), "STO-L103")


def test_restored_backup_that_replays_the_same_leaves_goes_on(
    place: Place, tmp_path: Path
) -> None:
    """Control: what the witness refuses is another history, not the restoring."""
    with place.open() as log:
        log.wait_published(append(log, b"a"), 60)
    shutil.copytree(place.data, tmp_path / "backup")
    with place.open() as log:
        log.wait_published(append(log, b"b"), 60)
    shutil.rmtree(place.data)
    shutil.copytree(tmp_path / "backup", place.data)
    with place.open() as log:
        log.wait_published(append(log, b"b"), 60)
        log.wait_published(append(log, b"c"), 60)


def test_crash_between_cosignature_and_rename_goes_on(place: Place) -> None:
    with place.open() as log:
        log.wait_published(append(log, b"a"), 60)
    fault = Fault("write_checkpoint", 1, FaultKind.IO_ERROR, persisted=False)
    with place.open(store=FaultyStore(place.data, fault)) as log:
        with pytest.raises(InternalError, match="STO-L051"):
            log.wait_published(append(log, b"b"), 60)
        with pytest.raises(InternalError, match="STO-L051"):
            append(log, b"refused")
    with place.open() as log:
        log.wait_published(append(log, b"c"), 60)
        signed = open_checkpoint(log.checkpoint(), place.policy)
    assert (signed.checkpoint.size, signed.witnesses) == (3, {"w"})
