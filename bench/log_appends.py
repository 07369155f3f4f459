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
from pathlib import Path

from bench.rows import Row
from stoilo.audit.fakes import LogKey
from stoilo.audit.headdb import TreeHead
from stoilo.audit.leaf import Leaf, LeafKind, render_leaf
from stoilo.audit.logdb import NewLeaf
from stoilo.audit.merkle import EMPTY_ROOT, Frontier, leaf_hash
from stoilo.audit.sequencer import Sequencer
from stoilo.audit.store import DiskStore
from stoilo.core.digests import content_digest

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


def append_rate(append: Callable[[bytes], int], turn: int, each: int) -> float:
    """Return appends per second of 64 threads that append `each` leaves one by one."""
    leaves = [
        [make_leaf(turn, worker, number) for number in range(each)]
        for worker in range(SUBMITTERS)
    ]

    def submit(worker: int) -> None:
        for leaf in leaves[worker]:
            append(leaf)

    threads = [threading.Thread(target=submit, args=(n,)) for n in range(SUBMITTERS)]
    began = time.perf_counter()
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return SUBMITTERS * each / (time.perf_counter() - began)


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
    key, rates = LogKey("bench.test/log"), []
    OUTPUT.mkdir(exist_ok=True)
    with tempfile.TemporaryDirectory(dir=OUTPUT) as folder:
        place = Path(folder)
        peer, bare = SingleFlushLog(place / "peer"), FlushedFile(place / "bare")
        with Sequencer.open(
            place / "ours", key.origin, key.sign, policy=key.policy
        ) as log:
            for turn in range(rounds):
                ours = append_rate(log.append, turn, each)
                single = append_rate(peer.append, turn, peer_each)
                rates.append((ours, single, append_rate(bare.append, turn, peer_each)))
            log.wait_published(log.size - 1, 30)
            at_rest = publish_milliseconds(log)
        peer.close()
        bare.close()
    ours, single, flushed = (
        statistics.median(column) for column in zip(*rates, strict=True)
    )
    met = ours / single >= 10 and ours >= 10_000
    return [
        Row("log appends, 64 submitters, durable in both databases", ours, "1/s",
            "one flush per append and database", single, ours / single, "times faster",
            ">= 10x and >= 10,000/s", met),
        Row("log appends, 64 submitters", ours, "1/s", "bare file, one fsync per append",
            flushed, ours / flushed, "times faster"),
        Row("append at rest to published checkpoint", at_rest, "ms",
            target="<= 50 ms", met=at_rest <= 50),
    ]  # fmt: skip
