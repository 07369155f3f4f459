"""Log appends at 64 submitters: ours against one fsync per append.

Acknowledged means durable in both databases. The peer writes the same leaves through the
same two databases, but flushes each append by itself, as a log without group commit does.
A bare file with one fsync per append is shown too; it keeps no tree, no index and no
second copy, so nothing is asked of that row. Publishing (tiles, signed checkpoints) runs
during our measurement.
"""

from __future__ import annotations

import os
import statistics
import tempfile
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from bench.rows import Row
from stoilo.audit.format.merkle import EMPTY_ROOT, Frontier, leaf_hash
from stoilo.audit.format.proof import Leaf, LeafKind, render_leaf
from stoilo.audit.log.database import NewLeaf
from stoilo.audit.log.sequencer import Sequencer
from stoilo.audit.log.store import DiskStore, TreeHead
from stoilo.core.digests import content_digest
from tests.support.faulty_log import LogKey

SUBMITTERS = 64
OUTPUT = Path(__file__).parent / "out"


def make_leaf(*place: int) -> bytes:
    """Return an admission leaf that no other place has."""
    digest = content_digest(repr(place).encode())
    return render_leaf(Leaf(LeafKind.ADMISSION, digest, "1", 1_700_000_000))


class SingleFlushLog:
    """The same two databases, one flushed transaction in each for every append."""

    def __init__(self, data_dir: Path) -> None:
        self._store = DiskStore(data_dir)
        self._store.create_log("peer")
        self._store.create_head("peer", TreeHead(0, EMPTY_ROOT))
        self._frontier, self._head = Frontier(), TreeHead(0, EMPTY_ROOT)
        self._guard = threading.Lock()

    def append(self, leaf: bytes) -> int:
        """Log one leaf, durable in both databases on return."""
        digest = leaf_hash(leaf)
        with self._guard:
            index = self._frontier.size
            self._frontier = self._frontier.extend([digest])
            self._store.commit([NewLeaf(index, digest, leaf)], [], self._frontier)
            head = TreeHead(self._frontier.size, self._frontier.root())
            self._store.swap_head(self._head, head)
            self._head = head
        return index

    def close(self) -> None:
        """Release the files."""
        self._store.close()


class FlushedFile:
    """A file that is flushed after each line."""

    def __init__(self, path: Path) -> None:
        self._file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
        self._guard = threading.Lock()

    def append(self, leaf: bytes) -> int:
        """Append one leaf and fsync."""
        with self._guard:
            os.write(self._file, leaf)
            os.fsync(self._file)
        return 0

    def close(self) -> None:
        """Close the file."""
        os.close(self._file)


@dataclass(frozen=True, slots=True)
class Run:
    """One round of all submitters.

    Attributes:
        rate: calls per second, all together.
        times: how long each call took, s.
    """

    rate: float
    times: list[float]

    def milliseconds(self, percent: int) -> float:
        """Return a percentile of the calls' times, ms."""
        return statistics.quantiles(self.times, n=100)[percent - 1] * 1e3


def run_submitters(append: Callable[[bytes], object], turn: int, each: int) -> Run:
    """Let 64 threads append `each` leaves one by one, every call timed."""
    leaves = [
        [make_leaf(turn, worker, number) for number in range(each)]
        for worker in range(SUBMITTERS)
    ]
    times: list[list[float]] = [[] for _ in range(SUBMITTERS)]

    def submit(worker: int) -> None:
        for leaf in leaves[worker]:
            began = time.perf_counter()
            append(leaf)
            times[worker].append(time.perf_counter() - began)

    threads = [threading.Thread(target=submit, args=(n,)) for n in range(SUBMITTERS)]
    began = time.perf_counter()
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    seconds = time.perf_counter() - began
    return Run(SUBMITTERS * each / seconds, [one for some in times for one in some])


def publish_milliseconds(log: Sequencer) -> float:
    """Return the median time from append to published checkpoint at rest, ms."""
    times = []
    for number in range(15):
        time.sleep(0.04)
        began = time.perf_counter()
        log.wait_published(log.append(make_leaf(-1, number)), 10)
        times.append((time.perf_counter() - began) * 1e3)
    return statistics.median(times)


def measure(rounds: int = 5, each: int = 250, peer_each: int = 12) -> list[Row]:
    """Run ours and the peers in alternating rounds on one disk.

    Args:
        rounds: how often.
        each: our appends of each submitter in one round.
        peer_each: the peers' appends of each submitter in one round.
    """
    key = LogKey("bench.test/log")
    ours, peers, bares = [], [], []
    OUTPUT.mkdir(exist_ok=True)
    with tempfile.TemporaryDirectory(dir=OUTPUT) as folder:
        place = Path(folder)
        peer, bare = SingleFlushLog(place / "peer"), FlushedFile(place / "bare")
        with Sequencer.open(
            place / "ours", key.origin, key.sign, policy=key.policy
        ) as log:
            for turn in range(rounds):
                ours.append(run_submitters(log.append, turn, each))
                peers.append(run_submitters(peer.append, turn, peer_each))
                bares.append(run_submitters(bare.append, turn, peer_each))
            wait = _until_covered(log)
            covered = [run_submitters(wait, -2 - turn, 10) for turn in range(rounds)]
            at_rest = publish_milliseconds(log)
        peer.close()
        bare.close()
    return [
        *_append_rows(ours, peers, bares),
        *_checkpoint_rows(covered),
        Row("append at rest to published checkpoint", at_rest, "ms",
            target="<= 50 ms", met=at_rest <= 50),
    ]  # fmt: skip


def _until_covered(log: Sequencer) -> Callable[[bytes], object]:
    """Return what appends a leaf and waits for a checkpoint over it."""
    return lambda leaf: log.wait_published(log.append(leaf), 60)


def _append_rows(ours: list[Run], peers: list[Run], bares: list[Run]) -> list[Row]:
    """Return rates and tail of appending, medians over the rounds."""
    rate, single, flushed = (
        statistics.median(run.rate for run in runs) for runs in (ours, peers, bares)
    )
    late, peer_late = (
        statistics.median(run.milliseconds(99) for run in runs)
        for runs in (ours, peers)
    )
    met = rate / single >= 10 and rate >= 10_000
    return [
        Row("log appends, 64 submitters, durable in both databases", rate, "1/s",
            "one flush per append and database", single, rate / single, "times faster",
            ">= 10x and >= 10,000/s", met),
        Row("log appends, 64 submitters", rate, "1/s", "bare file, one fsync per append",
            flushed, rate / flushed, "times faster"),
        Row("one append among 64 submitters, p99", late, "ms",
            "one flush per append and database", peer_late, peer_late / late,
            "times faster"),
    ]  # fmt: skip


def _checkpoint_rows(covered: list[Run]) -> list[Row]:
    """Return how long an append waits for a published checkpoint over it."""
    rate = statistics.median(run.rate for run in covered)
    median, late = (
        statistics.median(run.milliseconds(percent) for run in covered)
        for percent in (50, 99)
    )
    return [
        Row("appends to covering checkpoint, 64 submitters that wait", rate, "1/s"),
        Row("append to covering checkpoint, 64 submitters, median", median, "ms"),
        Row("append to covering checkpoint, 64 submitters, p99", late, "ms"),
    ]
