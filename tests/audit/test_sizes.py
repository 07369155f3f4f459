"""Logs at the edges of tiles, and memory that does not grow with the log."""

import tracemalloc
from collections.abc import Callable
from pathlib import Path

import pytest

from stoilo.audit.format.merkle import leaf_hashes
from stoilo.audit.format.proof import check_proof
from stoilo.audit.log.batching import SequencerSettings
from stoilo.audit.log.sequencer import Sequencer
from stoilo.audit.log.store import LogPaths
from stoilo.audit.log.tile_directory import TileDirectory
from stoilo.audit.read.reader import verify_log
from tests.support.faulty_log import LogKey
from tests.support.memory_tree import tiles_of

Opener = Callable[..., Sequencer]
EDGES = (1, 255, 256, 257, 65_535, 65_536, 65_537)


def grow(log: Sequencer, size: int) -> None:
    """Append up to `size` leaves, each its number, and wait for the checkpoint."""
    for start in range(log.size, size, 5000):
        log.append_many([b"%d" % n for n in range(start, min(start + 5000, size))])
    log.wait_published(size - 1, 60)


def test_log_is_proven_verified_and_reopened_at_every_edge_of_a_tile(
    open_log: Opener, key: LogKey, tmp_path: Path
) -> None:
    settings = SequencerSettings(batch_leaves=5000, busy_interval_s=1)
    for size in EDGES:
        with open_log(settings=settings) as log:
            grow(log, size)
            for index in {0, size // 2, size - 2, size - 1} - {-1}:
                check_proof(log.proof(index), b"%d" % index, key.policy)
            assert log.append(b"%d" % (size - 1)) == size - 1  # dedup finds it
        assert verify_log(tmp_path / "data", key.policy).size == size
        stored = set(TileDirectory(LogPaths.below(tmp_path / "data").log).tiles())
        assert stored >= set(tiles_of(size))


@pytest.mark.parametrize("leaf", [b"", b"x" * 65_535])
def test_bundle_of_extreme_leaves_is_verified(
    open_log: Opener, tmp_path: Path, leaf: bytes
) -> None:
    """A leaf of 0 bytes exists once; of 65,535 bytes a whole bundle fits in 16 MiB."""
    with open_log() as log:
        log.append_many([leaf[:-3] + b"%03d" % n for n in range(257 if leaf else 0)])
        log.wait_published(log.append(leaf), 60)
        size = log.size
    assert verify_log(tmp_path / "data").size == size


def peak_bytes(work: Callable[[], object]) -> int:
    # The lesser of two: Python's table of interned strings (pathlib fills it) may grow
    # by 2 MB at any moment, which is nobody's here.
    return min(_peak_of(work), _peak_of(work))


def _peak_of(work: Callable[[], object]) -> int:
    tracemalloc.start()
    try:
        work()
        return tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()


def test_memory_of_verifying_and_starting_does_not_grow_with_the_log(
    open_log: Opener, tmp_path: Path
) -> None:
    settings = SequencerSettings(batch_leaves=5000, busy_interval_s=1)
    sizes, peaks = (4_000, 40_000), []
    for size in sizes:
        with open_log(settings=settings) as log:
            grow(log, size)
        verify_log(tmp_path / "data")
        verified = peak_bytes(lambda: verify_log(tmp_path / "data"))
        peaks.append((verified, peak_bytes(lambda: open_log().close())))
    room = 8 * (sizes[1] - sizes[0])  # less than a hash, or a number, for each leaf
    for small, large in zip(*peaks, strict=True):
        assert large - small < room
    held = peak_bytes(lambda: leaf_hashes(b"%d" % number for number in range(sizes[1])))
    assert held > room  # the control: whoever holds the hashes would be noticed


def test_backlog_without_signer_does_not_stay_in_memory(open_log: Opener) -> None:
    up = []

    def sign(body: bytes) -> bytes:
        if not up:
            raise ConnectionRefusedError("signer")
        return LogKey("log.test/t").sign(body)

    log = open_log(sign=sign, settings=SequencerSettings(retry_s=0.01))
    publisher = log._publication._publisher
    for start in range(0, 30_000, 5000):
        log.append_many([b"%d" % number for number in range(start, start + 5000)])
        assert sum(len(data) for _, data in publisher._pending) < 2**20
    up.append(True)
    log.wait_published(29_999, 60)
    assert publisher._pending == []
    assert len(publisher._replaced) < 256
