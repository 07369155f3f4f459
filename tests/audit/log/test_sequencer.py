import threading
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from stoilo.audit.format.policy import open_checkpoint
from stoilo.audit.format.proof import check_proof
from stoilo.audit.log.batching import SequencerSettings
from stoilo.audit.log.sequencer import Sequencer
from stoilo.audit.read.reader import verify_log
from stoilo.core.errors import InternalError, TrustError, UsageError, WaitError
from tests.support.faulty_log import Fault, FaultKind, FaultyStore, LogKey

Opener = Callable[..., Sequencer]
Refused = Callable[[Sequencer, int, str], None]


def test_appended_leaf_is_proven_under_a_published_checkpoint(
    open_log: Opener, key: LogKey
) -> None:
    log = open_log()
    indices = [log.append(b"leaf %d" % number) for number in range(300)]
    log.wait_published(299, 60)
    assert indices == list(range(300))
    for index in (0, 1, 255, 256, 299):
        leaf = b"leaf %d" % index
        assert check_proof(log.proof(index), leaf, key.policy).index == index
        assert log.leaf(index) == leaf


def test_single_append_at_rest_does_not_wait_for_more(open_log: Opener) -> None:
    log, times = open_log(), []
    for number in range(9):
        began = time.perf_counter()
        log.wait_published(log.append(b"%d" % number), 60)
        times.append(time.perf_counter() - began)
        time.sleep(0.03)
    assert (
        min(times) < 0.5
    )  # the bench says how long; a pause to gather would be seconds


def test_busy_log_still_publishes_soon_for_who_waits(open_log: Opener) -> None:
    log = open_log(settings=SequencerSettings(busy_interval_s=600))
    log.append_many([b"many %d" % number for number in range(300)])
    log.wait_published(299, 60)
    assert log.wait_published(log.append(b"one more"), 60) == log.checkpoint()
    assert log.published_size == 301


def test_same_leaf_again_keeps_its_index(open_log: Opener) -> None:
    log = open_log()
    assert log.append_many([b"a", b"b", b"a", b"c"]) == [0, 1, 0, 2]
    assert log.append(b"b") == 1
    assert log.size == 3


def test_same_leaf_after_restart_keeps_its_index(open_log: Opener) -> None:
    with open_log() as log:
        log.append_many([b"a", b"b"])
    assert open_log().append(b"b") == 1


def test_concurrent_submitters_get_distinct_places(
    open_log: Opener, key: LogKey, tmp_path: Path
) -> None:
    log = open_log()
    places: dict[bytes, int] = {}

    def submit(worker: int) -> None:
        for number in range(50):
            leaf = b"%d/%d" % (worker, number)
            places[leaf] = log.append(leaf)

    threads = [threading.Thread(target=submit, args=(n,)) for n in range(16)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(places.values()) == list(range(800))
    assert all(log.leaf(index) == leaf for leaf, index in places.items())
    log.wait_published(799, 60)
    assert verify_log(tmp_path / "data", key.policy).size == 800


def test_label_finds_every_leaf_of_a_task(open_log: Opener) -> None:
    with open_log() as log:
        log.append(b"other", "task-0")
        log.append(b"admission", "task-1")
        log.append(b"result", "task-1")
        log.append(b"result", "task-1")
    assert open_log().find_label("task-1") == [1, 2]


@pytest.mark.parametrize("leaf", [b"", b"x" * 65_535])
def test_leaf_of_extreme_length_is_proven(
    open_log: Opener, key: LogKey, tmp_path: Path, leaf: bytes
) -> None:
    log = open_log()
    log.wait_published(log.append(leaf), 60)
    assert check_proof(log.proof(0), leaf, key.policy).size == 1
    assert verify_log(tmp_path / "data").size == 1


def test_too_long_leaf_is_refused(open_log: Opener) -> None:
    with pytest.raises(UsageError, match="STO-L010"):
        open_log().append(b"x" * 65_536)


def test_second_writer_is_refused(open_log: Opener) -> None:
    open_log()
    with pytest.raises(InternalError, match="STO-L040"):
        open_log()


def test_empty_log_signs_nothing(open_log: Opener, key: LogKey) -> None:
    signed: list[bytes] = []

    def sign(body: bytes) -> bytes:
        signed.append(body)
        return key.sign(body)

    with open_log(sign=sign) as log, pytest.raises(WaitError, match="STO-L056"):
        log.checkpoint()
    assert not signed


def test_checkpoints_only_grow(open_log: Opener, key: LogKey) -> None:
    log, sizes = open_log(), []
    for number in range(20):
        log.wait_published(log.append(b"%d" % number), 60)
        sizes.append(open_checkpoint(log.checkpoint(), key.policy).checkpoint.size)
    assert sizes == sorted(sizes)


def test_close_publishes_what_was_acknowledged(
    open_log: Opener, tmp_path: Path
) -> None:
    with open_log() as log:
        log.append_many([b"%d" % number for number in range(1000)])
    assert verify_log(tmp_path / "data").size == 1000


def test_append_after_close_is_refused(open_log: Opener) -> None:
    log = open_log()
    log.close()
    with pytest.raises(InternalError, match="STO-L051"):
        log.append(b"late")


@pytest.mark.parametrize(
    "failure", [ConnectionRefusedError("busy"), WaitError("STO-K999", "busy")]
)
def test_unreachable_signer_delays_publication_but_loses_nothing(
    open_log: Opener, key: LogKey, wait_refused: Refused, failure: Exception
) -> None:
    failures = [failure]

    def sign(body: bytes) -> bytes:
        if failures:
            raise failures[0]
        return key.sign(body)

    log = open_log(sign=sign)
    index = log.append(b"patient")
    wait_refused(log, index, "busy")
    failures.clear()
    log.wait_published(index, 60)


def test_signer_that_signs_something_else_publishes_nothing(
    open_log: Opener, key: LogKey, tmp_path: Path, wait_refused: Refused
) -> None:
    log = open_log(sign=lambda body: key.sign(body.replace(b"1", b"2")))
    wait_refused(log, log.append(b"x"), "STO-L054")
    assert not (tmp_path / "data/audit/log/checkpoint").exists()


def test_missing_witness_publishes_nothing(
    open_log: Opener, tmp_path: Path, wait_refused: Refused
) -> None:
    witnessed = LogKey("log.test/t", witness_time=1_700_000_000)
    alone = LogKey("log.test/t")
    log = open_log(sign=alone.sign, policy=witnessed.policy)
    wait_refused(log, log.append(b"x"), "STO-L013")
    assert not (tmp_path / "data/audit/log/checkpoint").exists()


def test_witnessed_log_proves_a_time(open_log: Opener) -> None:
    key = LogKey("log.test/t", witness_time=1_700_000_000)
    log = open_log(sign=key.sign, policy=key.policy)
    log.wait_published(log.append(b"x"), 60)
    proven = check_proof(log.proof(0), b"x", key.policy)
    assert proven.checkpoint_time == 1_700_000_000


def test_second_writer_of_the_head_stops_the_log(
    open_log: Opener, tmp_path: Path
) -> None:
    from stoilo.audit.log.store import HeadDatabase, TreeHead  # noqa: PLC0415

    log = open_log()
    log.append(b"one")
    intruder = HeadDatabase(tmp_path / "data/audit-head/head.sqlite")
    state = intruder.load()
    assert state is not None
    intruder.swap(state.head, TreeHead(7, bytes(32)))
    intruder.close()
    with pytest.raises(InternalError, match="changed by another process"):
        log.append(b"two")
    log.close()
    with pytest.raises(TrustError, match="STO-L04"):
        open_log()


def test_full_disk_refuses_and_then_goes_on(open_log: Opener, tmp_path: Path) -> None:
    fault = Fault("commit", 2, FaultKind.DISK_FULL, persisted=False)
    log = open_log(store=FaultyStore(tmp_path / "data", fault))
    assert log.append(b"one") == 0
    with pytest.raises(InternalError, match="STO-R030"):
        log.append(b"two")
    assert log.append(b"two") == 1
    log.wait_published(1, 60)
    assert verify_log(tmp_path / "data").size == 2


def test_real_full_disk_of_the_database_refuses_and_then_goes_on(
    open_log: Opener, tmp_path: Path
) -> None:
    store = FaultyStore(tmp_path / "data")
    log = open_log(store=store)
    log.append(b"one")
    writer = store._log._write()
    pages = writer.execute("PRAGMA page_count").fetchone()[0]
    writer.execute(f"PRAGMA max_page_count = {pages}")
    with pytest.raises(InternalError, match="STO-R030"):
        log.append_many([b"%d" % number * 65_000 for number in range(9)])
    size = log.size
    writer.execute("PRAGMA max_page_count = 1000000")
    assert log.append(b"after") == size
    log.wait_published(size, 60)
    assert verify_log(tmp_path / "data").size == size + 1
