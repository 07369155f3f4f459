"""The check before a log goes on: leaves, head, tiles and checkpoint must agree.

Everything is derived again from the leaves. What a crash between two steps can leave
goes on (the log database ahead of the head, tiles ahead of the checkpoint); anything
else refuses to start and says which part lies. Nothing is ever repaired by signing a
smaller or another tree.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass

from stoilo.audit.format.merkle import (
    EMPTY_ROOT,
    HASH_BYTES,
    Checkpoint,
    Frontier,
    parse_checkpoint,
)
from stoilo.audit.format.note import parse_note
from stoilo.audit.format.policy import NO_QUORUM, LogPolicy, open_checkpoint
from stoilo.audit.format.tiles import (
    ENTRIES,
    TILE_WIDTH,
    Tile,
    TileBuilder,
    farthest_tiles,
    is_within,
    render_tile_path,
    tile_at,
)
from stoilo.audit.log.database import LogState
from stoilo.audit.log.store import DiskStore, HeadState, TreeHead
from stoilo.core.errors import TrustError


class TileScrub:
    """Takes a log's leaves in order and checks every tile as it becomes known."""

    def __init__(
        self,
        # tile → bytes as stored, None when absent. Hostile.
        read: Callable[[Tile], bytes | None],
        required: int,  # size of the checkpoint whose tiles must all be there
        # full tile → widths of the partial tiles stored at its place, which are checked
        # although nothing requires them; nothing where that cannot be known
        partials: Callable[[Tile], Iterable[int]] = lambda _: (),
    ) -> None:
        self._read = read
        self._required = required
        self._partials = partials
        self._builder = TileBuilder()
        self.checked = 0

    @property
    def size(self) -> int:
        """Leaves taken so far."""
        return self._builder.size

    @property
    def builder(self) -> TileBuilder:
        """The tree of the leaves taken so far."""
        return self._builder

    def extend(self, leaves: Sequence[bytes]) -> None:
        """Take the next leaves and check the tiles that became full by them.

        Raises:
            TrustError: ``STO-L031`` for a missing tile, ``STO-L032`` for a wrong one.
        """
        for tile, data in self._builder.extend(leaves):
            self._check_place(tile, data)

    def finish(self) -> None:
        """Check the right edge; raises as `extend`."""
        for tile, data in self._builder.partial():
            self._check_place(tile, data)

    def _check_place(self, tile: Tile, data: bytes) -> None:
        """Check the tile at one place in every width that is required or stored."""
        seen = set()
        for width in sorted({*self._partials(tile.full), tile.width}):
            if width > tile.width:  # a writer went on meanwhile
                continue
            present = self._read(Tile(tile.level, tile.index, width))
            if present is not None:
                self._compare(Tile(tile.level, tile.index, width), present, data)
                seen.add(width)
        wanted = tile_at(tile.level, tile.index, self._required)
        if wanted.width > 0 and wanted.width not in seen:
            self._check_required(wanted, data)

    def _check_required(self, wanted: Tile, data: bytes) -> None:
        present = self._read(wanted)
        if present is not None:
            self._compare(wanted, present, data)
            return
        full = self._read(wanted.full)  # partial ones may go once the full one is there
        if full is None:
            raise TrustError("STO-L031", f"{render_tile_path(wanted)} is missing")
        expected = _prefix(wanted, data)
        self._compare(wanted, full[: len(expected)], data)

    def _compare(self, tile: Tile, present: bytes, data: bytes) -> None:
        self.checked += 1
        if present != _prefix(tile, data):
            raise TrustError(
                "STO-L032", f"{render_tile_path(tile)} does not hold what the log says"
            )


def _prefix(tile: Tile, data: bytes) -> bytes:
    """Return the first `tile.width` hashes or entries of a tile's bytes."""
    if tile.width == TILE_WIDTH:
        return data
    if tile.level != ENTRIES:
        return data[: tile.width * HASH_BYTES]
    at = 0
    for _ in range(tile.width):
        at += 2 + int.from_bytes(data[at : at + 2], "big")
    return data[:at]


_CHUNK = 256  # leaves read at a time: at most 16 MiB
EMPTY_HEAD = TreeHead(0, EMPTY_ROOT)


@dataclass(frozen=True, slots=True)
class Opening:
    """A log found sound."""

    frontier: Frontier  # of all committed leaves
    head: TreeHead  # of the head database; at most as large as the frontier
    published: Checkpoint | None  # the published checkpoint, None before the first
    note: bytes  # its signed note
    builder: TileBuilder  # tile builder that stands at the published size
    # whether readers under today's policy accept the note; if not, it is older than its
    # witnesses and is published again with their cosignatures
    is_witnessed: bool = True


def open_store(store: DiskStore, origin: str, policy: LogPolicy | None) -> Opening:
    """Check a log, creating it where there is provably none yet.

    Raises:
        TrustError: ``STO-L041``…``STO-L049``, naming the part that disagrees.
    """
    head = store.load_head()
    log = store.load_log()
    note = store.load_checkpoint()
    # Tiles that lie beyond the databases betray a restored backup, whatever else
    # agrees.
    far = farthest_tiles(store.stored_tiles())
    _check_presence(log, head, fresh=note is None and not far)
    if log is None:
        store.create_log(origin)
        log = store.load_log()
    if head is None:
        store.create_head(origin, EMPTY_HEAD)
        head = HeadState(origin, EMPTY_HEAD, None)
    if log is None:
        raise TrustError("STO-L049", "the log database cannot be read back")
    if {log.origin, head.origin} != {origin}:
        raise TrustError(
            "STO-L048", f"the databases belong to {log.origin!r}, not to {origin!r}"
        )
    published = None
    if note is not None:
        published = _read_published(note, origin, policy)
    _check_sizes(log, head, published)
    builder = _check_contents(store, far, log, head.head, published)
    witnessed = policy is None or note is None or _is_accepted(note, policy)
    return Opening(log.frontier, head.head, published, note or b"", builder, witnessed)


def _check_presence(
    log: LogState | None, head: HeadState | None, *, fresh: bool
) -> None:
    """Refuse where a part is missing that must have been there."""
    if log is None and (not fresh or (head is not None and head.head.size > 0)):
        raise TrustError(
            "STO-L041",
            "the log database is gone, but this log has been written before",
            hint="restore audit/log.sqlite from the newest backup",
        )
    if head is None and (not fresh or (log is not None and log.frontier.size > 0)):
        raise TrustError(
            "STO-L041",
            "the head database is gone, but this log has been written before",
            hint="restore audit-head/head.sqlite; never start a new one beside a log",
        )


def _read_published(note: bytes, origin: str, policy: LogPolicy | None) -> Checkpoint:
    """Return the published checkpoint, verified as far as a policy is known.

    Its witnesses are not counted: it may be older than the policy that names them.
    """
    if policy is None:
        checkpoint = parse_checkpoint(parse_note(note).text)
    else:
        alone = dataclasses.replace(policy, quorum=NO_QUORUM)
        checkpoint = open_checkpoint(note, alone).checkpoint
    if checkpoint.origin != origin:
        raise TrustError(
            "STO-L048",
            f"the published checkpoint is of {checkpoint.origin!r}, not of {origin!r}",
        )
    return checkpoint


def _is_accepted(note: bytes, policy: LogPolicy) -> bool:
    try:
        open_checkpoint(note, policy.current)
    except TrustError:
        return False
    return True


def _check_sizes(log: LogState, head: HeadState, published: Checkpoint | None) -> None:
    size, head_size = log.frontier.size, head.head.size
    if size < head_size:
        raise TrustError(
            "STO-L043",
            f"the log database holds {size} leaves, but {head_size} were acknowledged: "
            "it is older than the head database",
            hint="restore the newest backup of audit/log.sqlite",
        )
    seen = published.size if published else 0
    if seen > head_size:
        older = "the head database" if size >= seen else "both databases"
        raise TrustError(
            "STO-L045",
            f"a checkpoint of {seen} leaves was published, but only {head_size} were "
            f"acknowledged here: {older} is older than what was published",
            hint=f"restore the newest backup of {older}",
        )
    known = 0
    if head.published is not None:
        known = parse_checkpoint(parse_note(head.published).text).size
    if seen < known:
        raise TrustError(
            "STO-L045",
            f"a checkpoint of {known} leaves was published, but the one on the disk "
            f"covers {seen}",
            hint="restore the log directory",
        )


def _check_contents(
    store: DiskStore,
    far: list[Tile],
    log: LogState,
    head: TreeHead,
    published: Checkpoint | None,
) -> TileBuilder:
    """Derive roots and tiles from the leaves and compare each with its record.

    Returns the tree's builder as it stood at the published size.
    """
    size, seen = log.frontier.size, published.size if published else 0
    for tile in far:
        if not is_within(tile, size):
            raise TrustError(
                "STO-L047",
                f"{render_tile_path(tile)} lies beyond the {size} leaves of the "
                "databases",
            )
    scrub = TileScrub(store.read_tile, seen, store.partial_widths)
    resume = TileBuilder()
    for leaves in _chunks(store, sorted({seen, head.size, size})):
        scrub.extend(leaves)
        if scrub.size == head.size and scrub.builder.root() != head.root:
            raise TrustError(
                "STO-L044", "the log database and the head database disagree"
            )
        if published and scrub.size == seen:
            if scrub.builder.root() != published.root:
                raise TrustError(
                    "STO-L046", "the published checkpoint and the databases disagree"
                )
            resume = scrub.builder.copy()
    frontier = scrub.builder.frontier()
    if frontier != log.frontier or log.root != frontier.root():
        raise TrustError("STO-L049", "the log database's leaves and root disagree")
    scrub.finish()
    return resume


def _chunks(store: DiskStore, stops: list[int]) -> Iterator[list[bytes]]:
    """Yield the leaves in order, in chunks that end at every stop."""
    start = 0
    for stop in stops:
        while start < stop:
            end = min(start + _CHUNK, stop)
            leaves = store.leaves(start, end)
            if len(leaves) != end - start:
                raise TrustError(
                    "STO-L049", f"the log database lacks leaves near {start}"
                )
            yield leaves
            start = end
