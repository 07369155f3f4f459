"""Publish what was acknowledged: tiles first, then a signed checkpoint over them.

Every tile is durable before the checkpoint that needs it is signed, and the root that
is signed is computed here from the tiles' hashes, apart from the sequencer's frontier.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from stoilo.audit.format.merkle import (
    Checkpoint,
    consistency_proof,
    parse_checkpoint,
    render_checkpoint,
)
from stoilo.audit.format.note import parse_note
from stoilo.audit.format.policy import LogPolicy, open_checkpoint
from stoilo.audit.format.tiles import TILE_WIDTH, Tile, TileBuilder, TileNodes
from stoilo.audit.log.batching import SequencerSettings
from stoilo.audit.log.sqlite import harmless_refusal
from stoilo.audit.log.store import DiskStore, TreeHead
from stoilo.core.errors import InternalError, StoiloError, TrustError, UnreachableError

Prove = Callable[[int], list[bytes]]
"""size → consistency proof from the tree of that size to the one being published."""

Cosign = Callable[[bytes, Prove], bytes]
"""(signed note, prove) → the same note with cosignature lines added.

Raises:
    UnreachableError: too few witnesses answered; it is tried again later.
"""

_CHUNK = 256  # leaves read at a time: at most 16 MiB
_PENDING_TILES = 64  # written together: at most 32 MiB


@dataclass(frozen=True, slots=True)
class Published:
    """A checkpoint that readers can fetch, and its signed note."""

    checkpoint: Checkpoint
    note: bytes


class Publisher:
    """Writes tiles and checkpoints of one log; used from one thread."""

    def __init__(
        self,
        store: DiskStore,  # the log's durable side
        origin: str,
        # body → full signed note, with cosignatures if the policy asks
        sign_checkpoint: Callable[[bytes], bytes],
        builder: TileBuilder,  # stands at the published size
        # what the log's readers will demand; None checks form only
        policy: LogPolicy | None,
        # asks the witnesses, after the tiles are durable and the log has signed
        cosign: Cosign | None = None,
    ) -> None:
        self._store = store
        self._origin = origin
        self._sign = sign_checkpoint
        self._builder = builder
        self._policy = policy
        self._cosign = cosign
        self._on_disk = {store.load_checkpoint()}  # what the file may hold
        self._pending: list[tuple[Tile, bytes]] = []
        self._replaced: list[Tile] = []

    def publish(self, head: TreeHead) -> Published:
        """Publish the tree at `head`, which the head database already holds.

        May be called again after a failure, with the same or a larger head.

        Raises:
            TrustError: ``STO-L049`` when tiles and head disagree (nothing is signed),
                ``STO-L044`` when a tile's name is taken, ``STO-L054`` for a bad note,
                ``STO-L053`` when somebody else has published.
            UnreachableError: ``STO-L058`` when the signer is out of reach,
                or the witnesses' own codes when too few of them cosigned.
            OSError, sqlite3.Error: the machine failed.
        """
        self._take_leaves(head.size)
        if self._builder.size != head.size or self._builder.root() != head.root:
            raise TrustError("STO-L049", "tiles and head disagree; nothing was signed")
        self._check_alone()
        self._write_pending(self._builder.partial())
        checkpoint = Checkpoint(self._origin, head.size, head.root)
        # Signed only after its tiles are durable: a signature cannot be taken back.
        note = self._witnessed(self._signed(checkpoint), checkpoint)
        self._check_alone()
        # If the next step fails nobody knows which of the two lies there.
        self._on_disk.add(note)
        self._store.write_checkpoint(note)
        self._on_disk = {note}
        return Published(checkpoint, note)

    def remember(self, published: Published) -> None:
        """Record a published checkpoint beside the head, drop tiles it replaced."""
        self._store.record_published(published.note)
        self._drop_replaced()

    def _check_alone(self) -> None:
        """Refuse to replace a checkpoint that this publisher did not write."""
        present = self._store.load_checkpoint()
        if present not in self._on_disk:
            raise TrustError(
                "STO-L053", "the published checkpoint was changed by another process"
            )
        self._on_disk = {present}

    def _take_leaves(self, size: int) -> None:
        while self._builder.size < size:
            start = self._builder.size
            leaves = self._store.leaves(start, min(start + _CHUNK, size))
            if not leaves:
                raise TrustError("STO-L049", f"leaf {start} is not in the log database")
            self._pending += self._builder.extend(leaves)
            if len(self._pending) >= _PENDING_TILES:
                self._write_pending([])

    def _write_pending(self, partial: Sequence[tuple[Tile, bytes]]) -> None:
        """Make full tiles, and the right edge, durable; keep no more than their names."""
        self._store.write_tiles([*self._pending, *partial])
        self._replaced += [tile for tile, _ in self._pending]
        self._pending.clear()
        if len(self._replaced) > _PENDING_TILES:  # long without a checkpoint
            self._drop_replaced()

    def _drop_replaced(self) -> None:
        """Remove partial tiles: readers of an older checkpoint fall back to the full one."""
        while self._replaced:
            self._store.drop_partials(self._replaced[-1])
            self._replaced.pop()

    def _signed(self, checkpoint: Checkpoint) -> bytes:
        """Have the checkpoint signed, and look at what came back."""
        body = render_checkpoint(checkpoint)
        try:
            note = self._sign(body)
        except OSError as error:
            raise UnreachableError(
                "STO-L058", f"the checkpoint's signer cannot be reached: {error}"
            ) from error
        if parse_note(note).text != body:
            raise TrustError("STO-L054", "the signer signed something else")
        return note

    def _witnessed(self, note: bytes, checkpoint: Checkpoint) -> bytes:
        """Have the note cosigned, and check it as its readers will."""
        if self._cosign is not None:
            try:
                note = self._cosign(note, self._prover(checkpoint.size))
            except OSError as error:
                raise UnreachableError(
                    "STO-L058", f"the witnesses cannot be asked: {error}"
                ) from error
        if self._policy is not None:
            seen = open_checkpoint(note, self._policy).checkpoint
        else:
            seen = parse_checkpoint(parse_note(note).text)
        if seen != checkpoint:
            raise TrustError("STO-L054", "the cosigned note is of another checkpoint")
        return note

    def _prover(self, size: int) -> Prove:
        """Return the maker of consistency proofs to `size`, from the tiles on the disk."""
        nodes = TileNodes(self._store.read_tile)
        return lambda old: consistency_proof(
            old, size, lambda level, place: nodes.node(level, place, size)
        )


# What publishing cannot recover from: tiles, databases and memory disagree, or two write.
_DISTRUST = frozenset({"STO-L044", "STO-L049", "STO-L053"})


class PublicationLoop:
    """Publishes the newest head that it was offered, again and again."""

    def __init__(
        self,
        publisher: Publisher,  # does one publication
        settings: SequencerSettings,
        head: TreeHead,  # the newest acknowledged head
        published: Published | None,  # what readers see already, None before the first
        # called with what makes going on impossible
        give_up: Callable[[Exception], None],
    ) -> None:
        self._publisher = publisher
        self._settings = settings
        self._head = head
        self._give_up = give_up
        self.newest = published
        self.error: StoiloError | None = None
        self._news = threading.Condition()  # the loop waits here for heads
        self._progress = threading.Condition()  # callers wait here for checkpoints
        self._awaited = 0  # leaves that somebody waits to see published
        self._leaving = False
        self._aborted = False
        self._ended = False
        self._thread = threading.Thread(
            target=self._run, name="log-publisher", daemon=True
        )

    @property
    def size(self) -> int:
        """Leaves under the published checkpoint."""
        return self.newest.checkpoint.size if self.newest else 0

    @property
    def is_over(self) -> bool:
        """Whether nothing more will be published."""
        return self._aborted or self._ended

    def start(self) -> None:
        """Start the thread."""
        self._thread.start()

    def offer(self, head: TreeHead) -> None:
        """Name a newer head, durable in both databases."""
        with self._news:
            self._head = head
            self._news.notify()

    def wait(self, index: int, timeout: float | None) -> bool:
        """Wait until leaf `index` is published; False after `timeout` s or at the end."""
        with self._news:
            if self._awaited <= index:
                self._awaited = index + 1
                self._news.notify()
        with self._progress:
            self._progress.wait_for(lambda: index < self.size or self.is_over, timeout)
            return index < self.size

    def leave(self, timeout: float) -> None:
        """Publish what was offered, once, then end; waits at most `timeout` s."""
        self._end()
        self._thread.join(timeout)

    def abort(self) -> None:
        """Publish nothing more."""
        self._aborted = True
        self._end()

    def _end(self) -> None:
        with self._news:
            self._leaving = True
            self._news.notify()
        with self._progress:
            self._progress.notify_all()

    def _run(self) -> None:
        try:
            while self._wait_for_head():
                began, before = time.monotonic(), self.size
                done = self._publish(self._head)
                if not done and self._leaving:
                    return
                self._rest(began, self._pause(before, done=done))
        finally:
            with self._progress:
                self._ended = True
                self._progress.notify_all()

    def _wait_for_head(self) -> bool:
        """Wait for leaves to publish; False when there is no more to do."""
        with self._news:
            self._news.wait_for(lambda: self._head.size > self.size or self._leaving)
            return not self._aborted and self._head.size > self.size

    def _pause(self, before: int, *, done: bool) -> float:
        if not done:
            return self._settings.retry_s
        if self.size - before >= TILE_WIDTH:
            return self._settings.busy_interval_s
        return self._settings.publish_interval_s

    def _rest(self, began: float, pause: float) -> None:
        """Keep the pace; the longer one only while nobody waits for leaves of now."""
        # Each publication flushes files, which appending waits for on the same disk.
        least = min(pause, self._settings.publish_interval_s)
        with self._news:
            self._wait_until(began + least, lambda: self._leaving)
            self._wait_until(began + pause, lambda: self._leaving or self._is_awaited)

    @property
    def _is_awaited(self) -> bool:
        return self.error is None and self.size < self._awaited <= self._head.size

    def _wait_until(self, end: float, over: Callable[[], bool]) -> None:
        left = end - time.monotonic()
        if left > 0:
            self._news.wait_for(over, left)

    def _publish(self, head: TreeHead) -> bool:
        """Publish one head; True when readers can see it."""
        try:
            published = self._publisher.publish(head)
        except StoiloError as error:
            self.error = error
            if error.code in _DISTRUST:
                self._give_up(error)
            return False
        except Exception as error:  # noqa: BLE001 - the publisher thread's edge
            self.error = InternalError("STO-L058", f"publishing failed: {error}")
            if harmless_refusal(error) is None:
                self._give_up(error)
            return False
        with self._progress:
            self.newest, self.error = published, None
            self._progress.notify_all()
        return self._remember(published)

    def _remember(self, published: Published) -> bool:
        """Do what need not be waited for: record the checkpoint, drop partial tiles."""
        try:
            self._publisher.remember(published)
        except Exception as error:  # noqa: BLE001 - the publisher thread's edge
            if harmless_refusal(error) is None:
                self._give_up(error)
            return False
        return True
