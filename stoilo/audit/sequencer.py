"""The single writer of a log: append, group commit, publish, prove.

Order of the durable steps, each flushed before the next begins:

1. leaves and frontier in the log database (one transaction a batch);
2. the new head in the head database (compare-and-swap);   → `append` returns
3. tiles and entry bundles, immutable files;
4. the signed checkpoint, by rename;                       → `wait_published` returns
5. the checkpoint remembered in the head database.

A crash between any two loses nothing that was acknowledged: see `stoilo.audit.startup`.
A batch is whatever arrived while the last one was being flushed; a lone append at rest
waits for nobody. After a flush failed in an unknown way the writer stops for good, for
the page cache may lie then; a full disk only refuses until there is space again.
"""

from __future__ import annotations

import threading
import time
from typing import TYPE_CHECKING, Self

from stoilo.audit.batching import AppendQueue, AppendRequest
from stoilo.audit.headdb import TreeHead
from stoilo.audit.leaf import MAX_LEAF_BYTES
from stoilo.audit.logdb import NewLeaf
from stoilo.audit.merkle import inclusion_proof, leaf_hash
from stoilo.audit.nodes import TileNodes
from stoilo.audit.pacing import SequencerSettings, is_disk_full
from stoilo.audit.policy import LogPolicy, render_policy
from stoilo.audit.proof import Proof, render_proof
from stoilo.audit.publisher import Published, Publisher
from stoilo.audit.startup import Opening, open_store
from stoilo.audit.store import DiskStore, LogStore
from stoilo.audit.tiles import TILE_WIDTH
from stoilo.core.errors import (
    InternalError,
    StoiloError,
    TrustError,
    UsageError,
    WaitError,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path
    from types import TracebackType

__all__ = ["Sequencer"]

# What publishing cannot recover from: tiles, databases and memory disagree.
_DISTRUST = frozenset({"STO-L047", "STO-L049"})


class Sequencer:
    """One open log; thread-safe; use `Sequencer.open`."""

    def __init__(
        self,
        store: LogStore,
        publisher: Publisher,
        opening: Opening,
        settings: SequencerSettings,
    ) -> None:
        self._store = store
        self._publisher = publisher
        self._settings = settings
        self._frontier = opening.frontier
        self._head = opening.head
        self._published: Published | None = None
        if opening.published is not None:
            self._published = Published(opening.published, opening.note)
        self._nodes = TileNodes(store.read_tile)
        self._queue = AppendQueue(settings.batch_leaves, settings.gather_s)
        self._progress = threading.Condition()
        self._broken: StoiloError | None = None
        self._publish_error: StoiloError | None = None
        self._threads = [
            threading.Thread(target=self._write_loop, name="log-writer", daemon=True),
            threading.Thread(
                target=self._publish_loop, name="log-publisher", daemon=True
            ),
        ]

    @classmethod
    def open(
        cls,
        data_dir: Path,
        origin: str,
        sign_checkpoint: Callable[[bytes], bytes],
        *,
        policy: LogPolicy | None = None,
        store: LogStore | None = None,
        settings: SequencerSettings | None = None,
    ) -> Self:
        """Open (or begin) the log of `data_dir` and start writing and publishing.

        Args:
            data_dir: the server's data directory; see `stoilo.audit.store` for layout.
            origin: the log's name, equal to its key's name.
            sign_checkpoint: checkpoint body → full signed note; runs on the publishing
                thread, may raise, and is called again later.
            policy: checked against every checkpoint before it is published, and
                published beside it as the log's own statement.
            store: another durable side, for tests.
            settings: pace.

        Raises:
            InternalError: ``STO-L040`` when another process writes this log.
            TrustError: ``STO-L041``…``STO-L049`` when its parts disagree.
        """
        store = store or DiskStore(data_dir)
        try:
            opening = open_store(store, origin, policy)
            if policy is not None:
                store.write_policy(render_policy(policy))
            publisher = Publisher(
                store, origin, sign_checkpoint, opening.builder, opening.pending, policy
            )
            log = cls(store, publisher, opening, settings or SequencerSettings())
            log._advance_head()
        except BaseException:
            store.close()
            raise
        for thread in log._threads:
            thread.start()
        return log

    # -- callers ------------------------------------------------------------------

    @property
    def size(self) -> int:
        """Leaves acknowledged so far."""
        return self._head.size

    @property
    def published_size(self) -> int:
        """Leaves under the published checkpoint."""
        return self._published.checkpoint.size if self._published else 0

    def append(self, leaf: bytes, label: str | None = None) -> int:
        """Log one leaf and return its index once it is durable in both databases.

        A leaf that is already there keeps its index: retrying is safe. `label` finds it
        again by `find_label` and is not published.

        Raises:
            UsageError: ``STO-L050`` when the leaf is too long.
            InternalError: ``STO-L051`` the writer has stopped, ``STO-L052`` disk full.
        """
        return self.append_many([leaf], [label])[0]

    def append_many(
        self, leaves: Sequence[bytes], labels: Sequence[str | None] | None = None
    ) -> list[int]:
        """Log leaves together, each with its own label; see `append`."""
        for leaf in leaves:
            if len(leaf) > MAX_LEAF_BYTES:
                raise UsageError(
                    "STO-L050", f"a leaf has at most {MAX_LEAF_BYTES} bytes"
                )
        if not leaves:
            return []
        names = [None] * len(leaves) if labels is None else labels
        if len(names) != len(leaves):
            raise UsageError("STO-L050", "every leaf has one label or None")
        request = AppendRequest(leaves, [leaf_hash(leaf) for leaf in leaves], names)
        if self._broken is not None or not self._queue.put(request):
            raise self._stopped()
        return request.result()

    def checkpoint(self) -> bytes:
        """Return the newest published checkpoint, a signed note.

        Raises:
            WaitError: ``STO-L056`` before the first one.
        """
        return self._newest().note

    def proof(self, index: int) -> bytes:
        """Return the tlog-proof of leaf `index` under the newest published checkpoint.

        Raises:
            WaitError: ``STO-L056`` when no published checkpoint covers it yet.
            TrustError: ``STO-L031`` when a tile has gone.
        """
        newest = self._newest()
        size = newest.checkpoint.size
        if not 0 <= index < size:
            raise WaitError(
                "STO-L056", f"leaf {index} is not under a published checkpoint yet"
            )
        path = inclusion_proof(
            index, size, lambda level, place: self._nodes.node(level, place, size)
        )
        return render_proof(Proof(index, tuple(path), newest.note))

    def wait_published(self, index: int, timeout: float | None = None) -> bytes:
        """Wait until a published checkpoint covers `index`; return that checkpoint.

        Args:
            index: a place that `append` returned.
            timeout: s, None waits as long as it takes.

        Raises:
            WaitError: ``STO-L055`` after `timeout`; the message says what is failing.
            InternalError: ``STO-L051`` when publishing has stopped for good.
        """
        with self._progress:
            self._progress.wait_for(
                lambda: index < self.published_size or self._is_stopped(), timeout
            )
            if index < self.published_size:
                return self._newest().note
            if self._is_stopped():
                raise self._stopped()
            reason = f": {self._publish_error}" if self._publish_error else ""
        raise WaitError(
            "STO-L055", f"leaf {index} was not published in {timeout} s{reason}"
        )

    def find_label(self, label: str) -> list[int]:
        """Return the places of the leaves labelled so, oldest first."""
        return self._store.find_label(label)

    def leaf(self, index: int) -> bytes:
        """Return an acknowledged leaf; raises ``STO-L023`` when there is none."""
        if not 0 <= index < self.size:
            raise TrustError("STO-L023", f"the log has no leaf {index}")
        return self._store.leaves(index, index + 1)[0]

    def close(self) -> None:
        """Commit what is queued, publish it, and release the log; twice is harmless."""
        self._queue.close()
        self._threads[0].join()
        with self._progress:
            self._progress.notify_all()
        self._threads[1].join(self._settings.close_s)
        self._store.close()

    def __enter__(self) -> Self:
        """Return the log."""
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Close the log."""
        self.close()

    # -- writing ------------------------------------------------------------------

    def _write_loop(self) -> None:
        while batch := self._queue.next_batch():
            try:
                self._commit(batch)
            except Exception as error:  # noqa: BLE001 - the writer thread's edge
                self._fail(batch, error)
            for request in batch:
                request.finish()
            self._tidy()

    def _commit(self, batch: list[AppendRequest]) -> None:
        """Make a batch durable in both databases and fill in the indices."""
        if self._broken is not None:
            raise self._broken
        places = self._store.find([one for request in batch for one in request.hashes])
        fresh: list[NewLeaf] = []
        labels: list[tuple[str, int]] = []
        for request in batch:
            for leaf, digest in zip(request.leaves, request.hashes, strict=True):
                if digest not in places:
                    places[digest] = self._frontier.size + len(fresh)
                    fresh.append(NewLeaf(places[digest], digest, leaf))
            request.indices = [places[digest] for digest in request.hashes]
            labels += [
                (label, index)
                for label, index in zip(request.labels, request.indices, strict=True)
                if label is not None
            ]
        if fresh or labels:
            frontier = self._frontier.extend(item.hash for item in fresh)
            self._store.commit(fresh, labels, frontier)
            self._frontier = frontier
        self._advance_head()

    def _tidy(self) -> None:
        """Keep the database's index in shape, after the batch was acknowledged."""
        if self._broken is not None:
            return
        try:
            self._store.move_tail()
        except Exception as error:  # noqa: BLE001 - the writer thread's edge
            if not is_disk_full(error):
                self._break(error)

    def _advance_head(self) -> None:
        """Move the head database to all that the log database holds."""
        if self._frontier.size == self._head.size:
            return
        head = TreeHead(self._frontier.size, self._frontier.root())
        self._store.swap_head(self._head, head)
        with self._progress:
            self._head = head
            self._progress.notify_all()

    def _fail(self, batch: list[AppendRequest], error: Exception) -> None:
        """Refuse a batch; stop for good unless only space was missing."""
        if is_disk_full(error):
            refusal: StoiloError = InternalError(
                "STO-L052", "the log's disk is full; nothing was acknowledged"
            )
        else:
            self._break(error)
            refusal = self._stopped()
        for request in batch:
            request.error = refusal

    def _break(self, error: Exception) -> None:
        """Stop writing and publishing until somebody reopens the log."""
        if not isinstance(error, StoiloError):
            error = InternalError("STO-L051", f"a durable step failed: {error!r}")
        with self._progress:
            self._broken = self._broken or error
            self._progress.notify_all()

    def _stopped(self) -> StoiloError:
        cause = f": {self._broken.message}" if self._broken else ""
        return InternalError("STO-L051", f"the log has stopped{cause}")

    def _is_stopped(self) -> bool:
        return self._broken is not None or not self._threads[1].is_alive()

    # -- publishing ---------------------------------------------------------------

    def _publish_loop(self) -> None:
        while self._wait_for_news():
            began, before = time.monotonic(), self.published_size
            pause = self._settings.publish_interval_s
            if self._head.size - before >= TILE_WIDTH:
                pause = self._settings.busy_interval_s
            if not self._publish(self._head):
                if not self._queue.is_open:
                    return
                pause = self._settings.retry_s
            rest = began + pause - time.monotonic()
            if rest > 0 and self._queue.is_open:
                with self._progress:
                    self._progress.wait_for(self._is_leaving, rest)

    def _wait_for_news(self) -> bool:
        """Wait for leaves to publish; False when there is no more to do."""
        with self._progress:
            self._progress.wait_for(
                lambda: self._head.size > self.published_size or self._is_leaving()
            )
            return self._broken is None and self._head.size > self.published_size

    def _is_leaving(self) -> bool:
        writer_done = not (self._queue.is_open or self._threads[0].is_alive())
        return writer_done or self._broken is not None

    def _publish(self, head: TreeHead) -> bool:
        """Publish one head; True when readers can see it."""
        try:
            published = self._publisher.publish(head)
        except StoiloError as error:
            self._publish_error = error
            if error.code in _DISTRUST:
                self._break(error)
            return False
        except Exception as error:  # noqa: BLE001 - the publisher thread's edge
            self._publish_error = InternalError(
                "STO-L058", f"publishing failed: {error}"
            )
            if not is_disk_full(error):
                self._break(error)
            return False
        with self._progress:
            self._published, self._publish_error = published, None
            self._progress.notify_all()
        return self._remember(published)

    def _remember(self, published: Published) -> bool:
        """Do what need not be waited for: record the checkpoint, drop partial tiles."""
        try:
            self._publisher.remember(published)
        except Exception as error:  # noqa: BLE001 - the publisher thread's edge
            if not is_disk_full(error):
                self._break(error)
            return False
        return True

    def _newest(self) -> Published:
        if self._published is None:
            raise WaitError("STO-L056", "no checkpoint has been published yet")
        return self._published
