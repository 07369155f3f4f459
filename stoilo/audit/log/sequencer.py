"""The single writer of a log: append, group commit, publish, prove.

Order of the durable steps, each flushed before the next begins:

1. leaves and frontier in the log database (one transaction a batch);
2. the new head in the head database (compare-and-swap);   → `append` returns
3. tiles and entry bundles, immutable files;
4. the signed checkpoint, by rename;                       → `wait_published` returns
5. the checkpoint remembered in the head database.

A crash between any two loses nothing that was acknowledged: see `stoilo.audit.log.startup`.
A batch is whatever arrived while the last one was being flushed; a lone append at rest
waits for nobody. After a flush failed in an unknown way the writer stops for good, for
the page cache may lie then; a full disk or a locked database only refuses for as long.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from pathlib import Path
from types import TracebackType
from typing import Self

from stoilo.audit.format.merkle import leaf_hashes
from stoilo.audit.format.policy import LogPolicy, render_policy
from stoilo.audit.format.proof import MAX_LEAF_BYTES, Proof, render_proof
from stoilo.audit.format.tiles import TileNodes, inclusion_proofs
from stoilo.audit.log.batching import AppendQueue, AppendRequest, SequencerSettings
from stoilo.audit.log.database import NewLeaf
from stoilo.audit.log.publisher import Cosign, PublicationLoop, Published, Publisher
from stoilo.audit.log.sqlite import harmless_refusal, with_our_errors
from stoilo.audit.log.startup import Opening, open_store
from stoilo.audit.log.store import DiskStore, TreeHead
from stoilo.core.errors import (
    InternalError,
    StoiloError,
    TrustError,
    UsageError,
    WaitError,
)


class Sequencer:
    """One open log; thread-safe; use `Sequencer.open`."""

    def __init__(
        self,
        store: DiskStore,
        publisher: Publisher,
        opening: Opening,
        settings: SequencerSettings,
    ) -> None:
        self._store = store
        self._publisher = publisher
        self._settings = settings
        self._frontier = opening.frontier
        self._head = opening.head
        published = None
        if opening.published is not None and opening.is_witnessed:
            published = Published(opening.published, opening.note)
        self._publication = PublicationLoop(
            publisher, settings, opening.head, published, self._break
        )
        self._nodes = TileNodes(store.read_tile)
        self._queue = AppendQueue(settings.batch_leaves, settings.gather_s)
        self._broken: StoiloError | None = None
        self._writer = threading.Thread(
            target=self._write_loop, name="log-writer", daemon=True
        )

    @classmethod
    @with_our_errors
    def open(
        cls,
        # the server's data directory; see `stoilo.audit.log.store` for layout
        data_dir: Path,
        origin: str,  # the log's name, equal to its key's name
        # checkpoint body → full signed note; runs on the publishing thread, may raise,
        # and is called again later
        sign_checkpoint: Callable[[bytes], bytes],
        *,
        # checked against every checkpoint before it is published, and published beside
        # it as the log's own statement
        policy: LogPolicy | None = None,
        store: DiskStore | None = None,  # another durable side, for tests
        # (signed note, prove) → note with cosignatures; runs on the publishing thread
        # after the tiles are durable; while it raises nothing is published, appends are
        # acknowledged all the same, and it is called again
        cosign: Cosign | None = None,
        settings: SequencerSettings | None = None,
    ) -> Self:
        """Open (or begin) the log of `data_dir` and start writing and publishing.

        Raises:
            InternalError: ``STO-L040`` when another process writes this log,
                ``STO-R030`` disk full, ``STO-L051`` the machine failed otherwise.
            TrustError: ``STO-L041``…``STO-L049`` when its parts disagree.
        """
        store = store or DiskStore(data_dir)
        try:
            opening = open_store(store, origin, policy)
            if policy is not None:
                store.write_policy(render_policy(policy))
            publisher = Publisher(
                store, origin, sign_checkpoint, opening.builder, policy, cosign
            )
            log = cls(store, publisher, opening, settings or SequencerSettings())
            log._advance_head()
        except BaseException:
            store.close()
            raise
        log._writer.start()
        log._publication.start()
        return log

    # -- callers ------------------------------------------------------------------

    @property
    def size(self) -> int:
        """Leaves acknowledged so far."""
        return self._head.size

    @property
    def published_size(self) -> int:
        """Leaves under the published checkpoint."""
        return self._publication.size

    @property
    def trouble(self) -> str:
        """What keeps leaves from being written or published now; empty for nothing."""
        error = self._broken or self._publication.error
        return "" if error is None else f"{error.message} [{error.code}]"

    def append(self, leaf: bytes, label: str | None = None) -> int:
        """Log one leaf and return its index once it is durable in both databases.

        A leaf that is already there keeps its index: retrying is safe. `label` finds it
        again by `find_label` and is not published.

        Raises:
            UsageError: ``STO-L010`` when the leaf is too long.
            InternalError: ``STO-L051`` the writer has stopped, ``STO-R030`` disk full,
                ``STO-L040`` another process locks a database.
        """
        return self.append_many([leaf], None if label is None else [label])[0]

    def append_many(
        self, leaves: Sequence[bytes], labels: Sequence[str | None] | None = None
    ) -> list[int]:
        """Log leaves together, each with its own label; see `append`."""
        for leaf in leaves:
            if len(leaf) > MAX_LEAF_BYTES:
                raise UsageError(
                    "STO-L010", f"a leaf has at most {MAX_LEAF_BYTES} bytes"
                )
        if not leaves:
            return []
        names = () if labels is None else labels
        if labels is not None and len(labels) != len(leaves):
            raise UsageError("STO-L010", "every leaf has one label or None")
        request = AppendRequest(leaves, leaf_hashes(leaves), names)
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
            TrustError: ``STO-L032`` when a tile has gone.
        """
        return self.proofs([index])[0]

    def proofs(self, indices: Sequence[int]) -> list[bytes]:
        """Return the tlog-proofs of leaves under one checkpoint, the newest published.

        Raises:
            WaitError: ``STO-L056`` when it does not cover all of them yet.
            TrustError: ``STO-L032`` when a tile has gone.
        """
        newest = self._newest()
        size = newest.checkpoint.size
        for index in indices:
            if not 0 <= index < size:
                raise WaitError(
                    "STO-L056", f"leaf {index} is not under a published checkpoint yet"
                )
        paths = inclusion_proofs(
            indices, size, lambda level, place: self._nodes.node(level, place, size)
        )
        return [
            render_proof(Proof(index, tuple(paths[index]), newest.note))
            for index in indices
        ]

    def wait_published(
        self,
        index: int,  # a place that `append` returned
        timeout: float | None = None,  # s, None waits as long as it takes
    ) -> bytes:
        """Wait until a published checkpoint covers `index`; return that checkpoint.

        Raises:
            WaitError: ``STO-L056`` after `timeout`; the message says what is failing.
            InternalError: ``STO-L051`` when publishing has stopped for good.
        """
        if self._publication.wait(index, timeout):
            return self._newest().note
        if self._publication.is_over:
            raise self._stopped()
        error = self._publication.error
        reason = f": {error}" if error else ""
        raise WaitError(
            "STO-L056", f"leaf {index} was not published in {timeout} s{reason}"
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
        self._writer.join()
        # Callers were told "acknowledged": readers should see it before we go.
        self._publication.leave(self._settings.close_s)
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
                self._commit(batch.requests)
            except Exception as error:  # noqa: BLE001 - the writer thread's edge
                self._fail(batch.requests, error)
            batch.finish()
            self._tidy()

    def _commit(self, requests: list[AppendRequest]) -> None:
        """Make requests durable in both databases and fill in their indices."""
        if self._broken is not None:
            raise self._broken
        hashes = [digest for request in requests for digest in request.hashes]
        # Who was cut off before our answer asks again: the leaf must keep its place.
        places = self._store.find(hashes)
        fresh, labels = self._place(requests, places)
        if fresh or labels:
            frontier = self._frontier.extend([item.hash for item in fresh])
            self._store.commit(fresh, labels, frontier)
            self._frontier = frontier
        self._advance_head()

    def _place(
        self, requests: list[AppendRequest], places: dict[bytes, int]
    ) -> tuple[list[NewLeaf], list[tuple[str, int]]]:
        """Give each leaf its place; return the leaves that are new, and all labels."""
        fresh: list[NewLeaf] = []
        labels: list[tuple[str, int]] = []
        size = self._frontier.size
        for request in requests:
            for leaf, digest in zip(request.leaves, request.hashes, strict=True):
                if digest not in places:
                    places[digest] = size
                    fresh.append(NewLeaf(size, digest, leaf))
                    size += 1
            request.indices = [places[digest] for digest in request.hashes]
            if request.labels:
                labels += [
                    (label, index)
                    for label, index in zip(
                        request.labels, request.indices, strict=True
                    )
                    if label is not None
                ]
        return fresh, labels

    def _tidy(self) -> None:
        """Keep the database's index in shape, after the batch was acknowledged."""
        if self._broken is not None:
            return
        try:
            self._store.move_tail()
        except Exception as error:  # noqa: BLE001 - the writer thread's edge
            if harmless_refusal(error) is None:
                self._break(error)

    def _advance_head(self) -> None:
        """Move the head database to all that the log database holds."""
        if self._frontier.size == self._head.size:
            return
        head = TreeHead(self._frontier.size, self._frontier.root())
        # From here on both databases hold the leaves, and they are acknowledged.
        self._store.swap_head(self._head, head)
        self._head = head
        self._publication.offer(head)

    def _fail(self, requests: list[AppendRequest], error: Exception) -> None:
        """Refuse requests; stop for good unless the failure changed nothing."""
        refusal: StoiloError | None = harmless_refusal(error)
        if refusal is None:
            self._break(error)
            refusal = self._stopped()
        for request in requests:
            request.error = refusal

    def _break(self, error: Exception) -> None:
        """Stop writing and publishing until somebody reopens the log."""
        if not isinstance(error, StoiloError):
            error = InternalError("STO-L051", f"a durable step failed: {error!r}")
        # The first failure is the cause; those after it follow from it.
        self._broken = self._broken or error
        self._publication.abort()

    def _stopped(self) -> StoiloError:
        cause = f": {self._broken.message}" if self._broken else ""
        return InternalError("STO-L051", f"the log has stopped{cause}")

    def _newest(self) -> Published:
        newest = self._publication.newest
        if newest is None:
            raise WaitError("STO-L056", "no checkpoint has been published yet")
        return newest
