"""Publish what was acknowledged: tiles first, then a signed checkpoint over them.

Every tile is durable before the checkpoint that needs it is signed, and the root that
is signed is computed here from the tiles' hashes, apart from the sequencer's frontier.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from stoilo.audit.checkpoint import Checkpoint, render_checkpoint
from stoilo.audit.note import parse_note
from stoilo.audit.policy import LogPolicy, open_checkpoint
from stoilo.core.errors import TrustError, UnreachableError

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from stoilo.audit.headdb import TreeHead
    from stoilo.audit.store import LogStore
    from stoilo.audit.tiles import Tile, TileBuilder

__all__ = ["Published", "Publisher"]

_CHUNK = 1024


@dataclass(frozen=True, slots=True)
class Published:
    """A checkpoint that readers can fetch, and its signed note."""

    checkpoint: Checkpoint
    note: bytes


class Publisher:
    """Writes tiles and checkpoints of one log; used from one thread.

    Args:
        store: the log's durable side.
        origin: the log's name.
        sign_checkpoint: body → full signed note, with cosignatures if the policy asks.
        builder: stands at most at the next size to publish.
        pending: full tiles that the builder has taken and the disk may not yet hold.
        policy: what the log's readers will demand; None checks form only.
    """

    def __init__(
        self,
        store: LogStore,
        origin: str,
        sign_checkpoint: Callable[[bytes], bytes],
        builder: TileBuilder,
        pending: Sequence[tuple[Tile, bytes]],
        policy: LogPolicy | None,
    ) -> None:
        self._store = store
        self._origin = origin
        self._sign = sign_checkpoint
        self._builder = builder
        self._policy = policy
        self._pending = list(pending)
        self._replaced: list[Tile] = []

    def publish(self, head: TreeHead) -> Published:
        """Publish the tree at `head`, which the head database already holds.

        May be called again after a failure, with the same or a larger head.

        Raises:
            TrustError: ``STO-L049`` when tiles and head disagree (nothing is signed),
                ``STO-L047`` when a tile's name is taken, ``STO-L054`` for a bad note.
            UnreachableError: ``STO-L059`` when the signer is out of reach.
            OSError, sqlite3.Error: the machine failed.
        """
        self._take_leaves(head.size)
        if self._builder.size != head.size or self._builder.root() != head.root:
            raise TrustError("STO-L049", "tiles and head disagree; nothing was signed")
        self._store.write_tiles([*self._pending, *self._builder.partial()])
        checkpoint = Checkpoint(self._origin, head.size, head.root)
        note = self._signed(checkpoint)
        self._store.write_checkpoint(note)
        self._replaced += [tile for tile, _ in self._pending]
        self._pending.clear()
        return Published(checkpoint, note)

    def remember(self, published: Published) -> None:
        """Record a published checkpoint beside the head, drop tiles it replaced."""
        self._store.record_published(published.note)
        while self._replaced:
            self._store.drop_partials(self._replaced.pop())

    def _take_leaves(self, size: int) -> None:
        while self._builder.size < size:
            start = self._builder.size
            leaves = self._store.leaves(start, min(start + _CHUNK, size))
            if not leaves:
                raise TrustError("STO-L049", f"leaf {start} is not in the log database")
            for leaf in leaves:
                self._pending += self._builder.add(leaf)

    def _signed(self, checkpoint: Checkpoint) -> bytes:
        """Have the checkpoint signed, and look at what came back."""
        body = render_checkpoint(checkpoint)
        try:
            note = self._sign(body)
        except OSError as error:
            raise UnreachableError(
                "STO-L059", f"the checkpoint's signer cannot be reached: {error}"
            ) from error
        if parse_note(note).text != body:
            raise TrustError("STO-L054", "the signer signed something else")
        if self._policy is not None:
            open_checkpoint(note, self._policy)
        return note
