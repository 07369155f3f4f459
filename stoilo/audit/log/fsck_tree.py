"""Build the tree again, block by block, from whatever copies of the leaves are left.

Each block's leaf hashes are settled among database, entry bundle and tile; then every
stored file of that place is compared with what was settled, and every recorded root
with the tree at its size. A block of a file is reported once, by its first wrong place:
whatever is wrong in it, the remedy is the same copy of the file.
"""

from __future__ import annotations

import itertools
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence

from stoilo.audit.format.merkle import (
    EMPTY_ROOT,
    HASH_BYTES,
    leaf_hashes,
    root,
)
from stoilo.audit.format.tiles import (
    ENTRIES,
    TILE_WIDTH,
    BlockTree,
    Tile,
    encode_bundle,
    split_bundle,
    tile_at,
)
from stoilo.audit.log.fsck_databases import LeafRows, States
from stoilo.audit.log.fsck_parts import Anchor, LogParts

Hashes = list[bytes | None]
# Two copies that differ in six places; beyond that a backup is the way.
_MIXTURES = 64


def settle(
    # what each place says, shorter or with None where it says nothing; the most trusted
    # first
    copies: Sequence[Hashes],
    width: int,  # 1…256
    is_right: Callable[[list[bytes]], bool] = lambda _: False,  # asks the tree above
) -> Hashes:
    """Choose among copies of a block of `width` leaves."""
    first, *others = [one for one in copies if one] or [[]]
    if len(first) == width and None not in first and all(o == first for o in others):
        return first  # a sound log: nothing to vote on
    votes = [_votes(copies, place) for place in range(width)]
    most = [one.most_common(1)[0][0] if one else None for one in votes]
    whole = [list(one[:width]) for one in copies]
    for hashes in itertools.chain([most], whole, _mixtures(votes)):
        known = complete(hashes)
        if known is not None and len(known) == width and is_right(known):
            return hashes
    return most


def _votes(copies: Sequence[Hashes], place: int) -> Counter[bytes]:
    said = [one[place] for one in copies if place < len(one)]
    return Counter(one for one in said if one is not None)


def _mixtures(votes: Sequence[Counter[bytes]]) -> Iterator[Hashes]:
    """Yield mixtures of copies that differ in different places, a bounded number."""
    choices: list[Hashes] = [list(one) or [None] for one in votes]
    mixtures = itertools.product(*choices)
    yield from (list(one) for one in itertools.islice(mixtures, _MIXTURES))


def complete(hashes: Hashes) -> list[bytes] | None:
    """Return the hashes when every one is known."""
    known = [one for one in hashes if one is not None]
    return known if len(known) == len(hashes) else None


def split_hashes(data: bytes) -> Hashes:
    """Return the whole hashes in a tile's bytes."""
    whole = len(data) - len(data) % HASH_BYTES
    return [data[at : at + HASH_BYTES] for at in range(0, whole, HASH_BYTES)]


class TreeCheck:
    """One walk over all leaves; use `run`."""

    def __init__(
        self,
        parts: LogParts,
        stored: Iterable[Tile],  # the tiles that lie on the disk
        rows: LeafRows | None,  # the log database's leaves, None when there is none
        # what the databases say; a root is recorded at each of their sizes
        states: States,
        # the checkpoint whose tiles must all be there; its root decides when it is
        # signed
        anchor: Anchor | None,
    ) -> None:
        self._parts = parts
        self._rows = rows
        head = states.acknowledged
        self._committed = states.log.frontier.size if states.log else head
        self._published = anchor.checkpoint.size if anchor else 0
        self._signed_root = anchor.checkpoint.root if anchor and anchor.signed else None
        self._size = max(self._committed, self._published)
        stops = (self._published, head, self._committed)
        self._stops = {stop for stop in stops if 0 < stop <= self._size}
        self._tree = BlockTree()
        self._is_known = True
        self._bundle: tuple[bytes, Hashes] = (b"", [])
        self._above: tuple[Tile, Hashes] | None = None
        self._stored: dict[Tile, list[int]] = defaultdict(list)
        for tile in stored:
            self._stored[tile.full].append(tile.width)
        self._wrong_rows: set[int] = set()
        self._roots: dict[int, bytes | None] = {0: EMPTY_ROOT}
        # the tree above the blocks before that in which the checkpoint ends
        self.published = BlockTree()
        self.checked = 0  # tiles and bundles compared
        self.frontier: tuple[bytes, ...] | None = None

    @property
    def damaged(self) -> frozenset[int]:
        """Places of leaves whose database row is wrong or missing."""
        return frozenset(self._wrong_rows)

    def root_at(self, size: int) -> bytes | None:
        """Return the root derived for a recorded size; None where copies were missing."""
        return self._roots.get(size)

    def run(self) -> None:
        """Walk over all leaves and report what does not fit."""
        rest: list[bytes] | None = []
        for index in range(-(-self._size // TILE_WIDTH)):
            width = min(TILE_WIDTH, self._size - index * TILE_WIDTH)
            rest = self._take_block(index, width)
        for tile, data in self._tree.partial():
            self._check_files(tile, split_hashes(data))
        self._report_beyond()
        if self._is_known and rest is not None:
            self.frontier = self._tree.frontier(rest).hashes

    def _take_block(self, index: int, width: int) -> list[bytes] | None:
        """Settle and compare one block; return the hashes of a last, partial one."""
        start = index * TILE_WIDTH
        leaves: list[bytes | None] = []
        if self._rows is not None and start < self._committed:
            leaves = self._rows.block(index, min(width, self._committed - start))
        mine = _hash_rows(leaves)
        settled = self._settle(index, width, leaves, mine)
        self._check_rows(start, mine, settled)
        self._check_files(Tile(0, index, width), settled)
        self._check_files(Tile(ENTRIES, index, width), settled)
        hashes = complete(settled)
        if start < self._published <= start + width:
            self.published = self._tree.copy()
        for stop in self._stops:
            if start < stop <= start + width:
                known = hashes if self._is_known else None
                self._roots[stop] = (
                    None
                    if known is None
                    else self._tree.frontier(known[: stop - start]).root()
                )
        if width < TILE_WIDTH:
            return hashes
        self._grow(index, hashes)
        return []

    def _settle(
        self, index: int, width: int, leaves: list[bytes | None], mine: Hashes
    ) -> Hashes:
        copies = [mine]
        if (data := self._primary(0, index)) is not None:
            copies.append(split_hashes(data))
        if (data := self._primary(ENTRIES, index)) is not None:
            # Equal bytes need not be taken apart and hashed once more.
            known = [leaf for leaf in leaves if leaf is not None]
            is_mine = len(known) == len(leaves) > 0 and data == encode_bundle(known)
            self._bundle = data, mine if is_mine else _hash_bundle(data, width)
            copies.append(self._bundle[1])
        return settle(copies, width, lambda one: self._is_right(index, one))

    def _primary(self, level: int, index: int) -> bytes | None:
        """Return the widest stored file of a place that the log can vouch for."""
        place = Tile(level, index)
        most = tile_at(level, index, self._size).width
        widths = [one for one in self._stored.get(place, []) if one <= most]
        if not widths:
            return None
        return self._parts.read_tile(Tile(level, index, max(widths)))

    def _is_right(self, index: int, hashes: list[bytes]) -> bool:
        """Ask the tile above, or the signed root, about a block's hashes."""
        if len(hashes) == TILE_WIDTH and self._parent(index) == root(hashes):
            return True
        rest = self._published - index * TILE_WIDTH
        if not (self._signed_root and self._is_known and 0 < rest <= TILE_WIDTH):
            return False
        return self._tree.frontier(hashes[:rest]).root() == self._signed_root

    def _parent(self, index: int) -> bytes | None:
        tile = Tile(1, index // TILE_WIDTH)
        if self._above is None or self._above[0] != tile:
            self._above = (tile, split_hashes(self._primary(1, tile.index) or b""))
        hashes, place = self._above[1], index % TILE_WIDTH
        return hashes[place] if place < len(hashes) else None

    def _grow(self, index: int, hashes: list[bytes] | None) -> None:
        # A block that is lost still has its hash in the tile above: the rest can be
        # checked.
        above = root(hashes) if hashes is not None else self._parent(index)
        if above is None:  # nothing tells this block's hash any more
            self._is_known = False
            above = bytes(HASH_BYTES)
        for tile, data in self._tree.add(above):
            self._check_files(tile, split_hashes(data))

    # -- comparing ----------------------------------------------------------------

    def _check_rows(self, start: int, mine: Hashes, settled: Hashes) -> None:
        if self._rows is None or mine == settled[: len(mine)]:
            return
        pairs = enumerate(zip(mine, settled, strict=False), start)
        wrong = {place: row for place, (row, right) in pairs if row != right or not row}
        self._wrong_rows.update(wrong)
        first = min(wrong)
        text = "the row is not the leaf that the other copies show"
        if wrong[first] is None:
            text = "the row is missing"
        text += _more(wrong)
        self._parts.fault("STO-L049", self._rows.file, text, place=f"leaf {first}")

    def _check_files(self, tile: Tile, hashes: Hashes) -> None:
        """Compare every stored width of a place, and miss those that must be there."""
        widths = self._stored.get(tile.full, [])
        mine = sorted(width for width in widths if width <= tile.width)
        for width in mine:
            stored = Tile(tile.level, tile.index, width)
            data = self._parts.read_tile(stored)
            self.checked += 1
            if data is not None:
                self._compare(stored, data, hashes[:width])
        # A writer beside us may have gone on; what nothing accounts for is told at the
        # end.
        self._stored[tile.full] = [width for width in widths if width > tile.width]
        wanted = tile_at(tile.level, tile.index, self._published)
        if wanted.width > 0 and not {wanted.width, TILE_WIDTH} & set(mine):
            text = f"is missing; the checkpoint of {self._published} leaves needs it"
            self._report_tile("STO-L032", wanted, text)

    def _compare(self, tile: Tile, data: bytes, hashes: Hashes) -> None:
        """Report a stored tile or bundle that does not hold exactly what was settled."""
        if tile.level == ENTRIES:
            if data != self._bundle[0]:
                self._bundle = data, _hash_bundle(data, tile.width)
            held, is_whole = self._bundle[1], True
        else:
            held, is_whole = split_hashes(data), len(data) % HASH_BYTES == 0
        if held == hashes and is_whole:
            return
        wrong = [
            place
            for place in range(tile.width)
            if place >= len(held) or held[place] != hashes[place]
        ]
        if not wrong:
            text = f"has {len(data)} bytes, which is not its length"
            self._report_tile("STO-L032", tile, text)
            return
        text = f"is not what the tree was built of{_more(wrong)}"
        self._report_tile("STO-L032", tile, text, _place_name(tile, wrong[0]))

    def _report_tile(self, code: str, tile: Tile, text: str, place: str = "") -> None:
        name = self._parts.tile_name(tile)
        follows = " (its contents follow from the log database)" if self._rows else ""
        remedy = f"restore {name} from a backup or a mirror of the log{follows}"
        self._parts.fault(code, name, text, place=place, remedy=remedy)

    def _report_beyond(self) -> None:
        """Report stored tiles that lie beyond every leaf known."""
        for place, widths in sorted(self._stored.items()):
            for width in sorted(widths):
                name = self._parts.tile_name(Tile(place.level, place.index, width))
                if self._parts.paths is None:  # a crash before its checkpoint, perhaps
                    text = "lies beyond the published checkpoint"
                    self._parts.notice("STO-L096", name, text)
                    continue
                text = f"lies beyond the {self._size} leaves of the databases"
                remedy = "restore the newest backup of both databases"
                self._parts.fault("STO-L044", name, text, remedy=remedy)


def _hash_rows(leaves: list[bytes | None]) -> Hashes:
    known = [leaf for leaf in leaves if leaf is not None]
    hashes = iter(leaf_hashes(known))
    return [None if leaf is None else next(hashes) for leaf in leaves]


def _hash_bundle(data: bytes, width: int) -> Hashes:
    """Return the hashes of a bundle's leaves, and one of nothing for bytes left over."""
    entries, rest = split_bundle(data, width)
    return [*leaf_hashes(entries), *([None] if rest else [])]


def _more(wrong: Sequence[int] | dict[int, bytes | None]) -> str:
    return f", and {len(wrong) - 1} more places after it" if len(wrong) > 1 else ""


def _place_name(tile: Tile, place: int) -> str:
    at = tile.index * TILE_WIDTH + place
    if tile.level <= 0:
        kind = "entry" if tile.level == ENTRIES else "hash"
        return f"{kind} {place} (leaf {at})"
    below = TILE_WIDTH**tile.level
    return f"hash {place} (leaves {at * below} to {(at + 1) * below - 1})"


def check_roots(
    parts: LogParts, states: States, anchor: Anchor | None, tree: TreeCheck
) -> bool:
    """Report recorded roots that the tree does not have.

    Returns whether the tree has a signed root (an empty, unpublished log has none).
    """
    if parts.paths is not None:
        head, log = parts.name(parts.paths.head), parts.name(parts.paths.database)
        if states.head is not None:
            size = states.head.head.size
            if tree.root_at(size) != states.head.head.root:
                text = f"its root of {size} leaves is not that of the leaves"
                parts.fault("STO-L044", head, text, place="table head, row 1")
        if states.log is not None:
            size = states.log.frontier.size
            # A frontier is known of the whole tree, which may be the published one.
            is_last = anchor is None or anchor.checkpoint.size <= size
            known = {None, states.log.frontier.hashes}
            is_edge_right = not is_last or tree.frontier in known
            if tree.root_at(size) != states.log.root or not is_edge_right:
                text = f"its root of {size} leaves or its frontier is not that of the leaves"
                parts.fault("STO-L049", log, text, place="table state, row 1")
    if anchor is None:
        return False
    size, derived = anchor.checkpoint.size, tree.root_at(anchor.checkpoint.size)
    if derived == anchor.checkpoint.root:
        return anchor.signed is not None
    text = f"the {size} leaves lead to another root, in whatever copies there are"
    if derived is None:
        text = f"not every one of its {size} leaves is left in some copy"
    remedy = "restore databases and log directory from the same moment"
    parts.fault("STO-L032", anchor.file, text, remedy=remedy)
    return False
