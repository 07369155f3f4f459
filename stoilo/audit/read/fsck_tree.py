"""Build the tree again, block by block, from whatever copies of the leaves are left.

Each block's leaf hashes are settled among database, entry bundle and tile; then every
stored file of that place is compared with what was settled, and every recorded root
with the tree at its size.
"""

from __future__ import annotations

import itertools
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass

from stoilo.audit.format.merkle import (
    EMPTY_ROOT,
    HASH_BYTES,
    leaf_hash,
    leaf_hashes,
    root,
)
from stoilo.audit.format.tiles import (
    ENTRIES,
    TILE_WIDTH,
    BlockTree,
    Tile,
    encode_bundle,
    tile_at,
)
from stoilo.audit.read.fsck_databases import LeafRows, States
from stoilo.audit.read.fsck_parts import Anchor, LogParts

Hashes = list[bytes | None]
# Two copies that differ in six places; beyond that a backup is the way.
_MIXTURES = 64


@dataclass(frozen=True, slots=True)
class Settled:
    """The leaf hashes of one block.

    Attributes:
        hashes: one for each leaf, None where no copy says anything.
        is_certain: whether all copies agree, or something above confirms the choice.
    """

    hashes: Hashes
    is_certain: bool

    def complete(self) -> list[bytes] | None:
        """Return the hashes when every one is known."""
        known = [one for one in self.hashes if one is not None]
        return known if len(known) == len(self.hashes) else None


def settle(
    copies: Sequence[Hashes],
    width: int,
    is_right: Callable[[list[bytes]], bool] | None = None,
) -> Settled:
    """Choose among copies of a block of `width` leaves.

    Args:
        copies: what each place says, shorter or with None where it says nothing; the
            most trusted first.
        width: 1…256.
        is_right: asks the tree above; None when there is nothing to ask.
    """
    first, *others = [one for one in copies if one] or [[]]
    if len(first) == width and None not in first and all(o == first for o in others):
        return Settled(first, is_certain=True)  # a sound log: nothing to vote on
    votes = [_votes(copies, place) for place in range(width)]
    most = [_elect(one) for one in votes]
    if all(len(one) == 1 for one in votes):
        return Settled(most, is_certain=True)
    whole = [list(one[:width]) for one in copies]
    for hashes in itertools.chain([most], whole, _mixtures(votes)):
        known = Settled(hashes, is_certain=True).complete()
        if known is None or len(known) != width or is_right is None:
            continue
        if is_right(known):
            return Settled(hashes, is_certain=True)
    return Settled(most, is_certain=False)


def _mixtures(votes: Sequence[Counter[bytes]]) -> Iterator[Hashes]:
    """Yield mixtures of copies that differ in different places, a bounded number."""
    choices: list[Hashes] = [list(one) or [None] for one in votes]
    mixtures = itertools.product(*choices)
    yield from (list(one) for one in itertools.islice(mixtures, _MIXTURES))


def _votes(copies: Sequence[Hashes], place: int) -> Counter[bytes]:
    said = [one[place] for one in copies if place < len(one)]
    return Counter(one for one in said if one is not None)


def _elect(votes: Counter[bytes]) -> bytes | None:
    """Return what most say; the first copy's word when they are even."""
    return votes.most_common(1)[0][0] if votes else None


def split_hashes(data: bytes) -> Hashes:
    """Return the whole hashes in a tile's bytes."""
    whole = len(data) - len(data) % HASH_BYTES
    return [data[at : at + HASH_BYTES] for at in range(0, whole, HASH_BYTES)]


def read_bundle(data: bytes, width: int) -> list[bytes]:
    """Return the leaves of a hostile bundle as far as they can be told apart."""
    entries: list[bytes] = []
    at = 0
    while len(entries) < width:
        end = at + 2 + int.from_bytes(data[at : at + 2], "big")
        if at + 2 > len(data) or end > len(data):
            break
        entries.append(data[at + 2 : end])
        at = end
    return entries


_NAMED = 8  # leaves named one by one in a block, the others are counted


@dataclass(frozen=True, slots=True)
class TreeResult:
    """What the walk over all leaves gave.

    Attributes:
        roots: size → root derived; None where copies were missing.
        frontier: the frontier at the end, None when it is not known.
        damaged: places of leaves whose database row is wrong or missing.
    """

    roots: dict[int, bytes | None]
    frontier: tuple[bytes, ...] | None
    damaged: frozenset[int]


class TreeCheck:
    """One walk; use `run`.

    Args:
        parts: the log.
        stored: the tiles that lie on the disk.
        rows: the log database's leaves, None when there is none.
        committed: how many leaves the log database should hold.
        published: size of the checkpoint whose tiles must all be there.
        signed_root: its root, when its signature verified.
        stops: sizes at which a root is recorded somewhere.
    """

    def __init__(
        self,
        parts: LogParts,
        stored: Iterable[Tile],
        rows: LeafRows | None,
        committed: int,
        published: int,
        signed_root: bytes | None,
        stops: Iterable[int],
    ) -> None:
        self._parts = parts
        self._found = parts.found
        self._rows = rows
        self._committed = committed
        self._published = published
        self._signed_root = signed_root
        self._size = max(committed, published)
        self._stops = {stop for stop in stops if 0 < stop <= self._size}
        self._tree = BlockTree()
        self._bundle: tuple[bytes, Hashes] = (b"", [])
        self.checked = 0  # tiles and bundles compared
        self.result = TreeResult({}, None, frozenset())
        self._is_known = True
        self._roots: dict[int, bytes | None] = {}
        self._damaged: set[int] = set()
        self._above: tuple[Tile, Hashes] | None = None
        self._stored: dict[Tile, list[int]] = defaultdict(list)
        for tile in stored:
            self._stored[tile.full].append(tile.width)

    def run(self) -> None:
        """Walk over all leaves and report what does not fit; `result` says the rest."""
        rest: list[bytes] | None = []
        for index in range(-(-self._size // TILE_WIDTH)):
            width = min(TILE_WIDTH, self._size - index * TILE_WIDTH)
            rest = self._take_block(index, width)
        for tile, data in self._tree.partial():
            self._check_files(tile, split_hashes(data))
        self._report_beyond()
        frontier = None
        if self._is_known and rest is not None:
            frontier = self._tree.frontier(rest).hashes
        self.result = TreeResult(self._roots, frontier, frozenset(self._damaged))

    def _take_block(self, index: int, width: int) -> list[bytes] | None:
        """Settle and compare one block; return the hashes of a last, partial one."""
        leaves: list[bytes | None] = []
        if self._rows is not None and index * TILE_WIDTH < self._committed:
            held = min(width, self._committed - index * TILE_WIDTH)
            leaves = self._rows.block(index, held)
        settled = self._settle(index, width, leaves)
        self._check_rows(index, leaves, settled)
        self._check_files(Tile(0, index, width), settled.hashes)
        self._check_files(Tile(ENTRIES, index, width), settled.hashes)
        hashes = settled.complete()
        self._note_roots(index, width, hashes)
        if width < TILE_WIDTH:
            return hashes
        self._grow(index, hashes)
        return []

    def _settle(self, index: int, width: int, leaves: list[bytes | None]) -> Settled:
        mine: Hashes = [None if one is None else leaf_hash(one) for one in leaves]
        copies = [mine]
        for level in (0, ENTRIES):
            data = self._primary(level, index)
            if data is None:
                continue
            if level == 0:
                copies.append(split_hashes(data))
            else:
                if data != _bundle_of(leaves):
                    self._bundle = data, _hash_bundle(data, width)
                else:
                    self._bundle = data, mine
                copies.append(self._bundle[1])
        return settle(copies, width, lambda one: self._is_right(index, one))

    def _primary(self, level: int, index: int) -> bytes | None:
        """Return the widest stored file of a place that the log can vouch for."""
        place = Tile(level, index)
        widths = [
            one for one in self._stored.get(place, []) if self._is_within(place, one)
        ]
        return (
            self._parts.read_tile(Tile(level, index, max(widths))) if widths else None
        )

    def _is_within(self, place: Tile, width: int) -> bool:
        return width <= tile_at(place.level, place.index, self._size).width

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

    def _note_roots(self, index: int, width: int, hashes: list[bytes] | None) -> None:
        start = index * TILE_WIDTH
        for stop in self._stops:
            if start < stop <= start + width:
                known = self._is_known and hashes is not None
                self._roots[stop] = (
                    self._tree.frontier(hashes[: stop - start]).root()
                    if known and hashes is not None
                    else None
                )

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

    def _check_rows(
        self, index: int, leaves: Sequence[bytes | None], settled: Settled
    ) -> None:
        if self._rows is None:
            return
        wrong = [
            (place, leaf is None)
            for place, (leaf, right) in enumerate(
                zip(leaves, settled.hashes, strict=False)
            )
            if leaf is None or leaf_hash(leaf) != right
        ]
        first = index * TILE_WIDTH
        self._damaged.update(first + place for place, _ in wrong)
        for place, is_missing in wrong[:_NAMED]:
            self._found.fault(
                "STO-L049",
                self._rows.file,
                "the row is missing"
                if is_missing
                else f"the row is not the leaf {_confirmed(settled)}",
                place=f"leaf {first + place}",
                remedy=f"restore the newest backup of {self._rows.file}",
            )
        self._count_others(self._rows.file, index, wrong)

    def _count_others(self, file: str, index: int, wrong: Sequence[object]) -> None:
        if len(wrong) > _NAMED:
            self._found.fault(
                "STO-L049",
                file,
                f"{len(wrong) - _NAMED} more leaves here are wrong or missing",
                place=f"leaves {index * TILE_WIDTH} to {(index + 1) * TILE_WIDTH - 1}",
                remedy=f"restore the newest backup of {file}",
            )

    def _check_files(self, tile: Tile, hashes: Hashes) -> None:
        """Compare every stored width of a place, and miss those that must be there."""
        widths = self._stored.get(tile.full, [])
        mine = sorted(width for width in widths if width <= tile.width)
        for width in mine:
            stored = Tile(tile.level, tile.index, width)
            data = self._parts.read_tile(stored)
            self.checked += 1
            if data is not None and not self._is_equal(stored, data, hashes):
                self._report_tile(stored, data, hashes)
        # A writer beside us may have gone on; what nothing accounts for is told at the
        # end.
        beyond = [width for width in widths if width > tile.width]
        self._stored[tile.full] = beyond
        wanted = tile_at(tile.level, tile.index, self._published)
        if wanted.width > 0 and not {wanted.width, TILE_WIDTH} & set(mine):
            name = self._parts.tile_name(wanted)
            self._found.fault(
                "STO-L031",
                name,
                f"is missing; the checkpoint of {self._published} leaves needs it",
                remedy=_tile_remedy(name, self._rows),
            )

    def _is_equal(self, tile: Tile, data: bytes, hashes: Hashes) -> bool:
        """Tell whether a stored tile or bundle holds exactly what was settled."""
        if tile.level != ENTRIES:
            return split_hashes(data) == hashes[: tile.width] and (
                len(data) == tile.width * HASH_BYTES
            )
        if data != self._bundle[0]:
            self._bundle = data, _hash_bundle(data, tile.width)
        return self._bundle[1] == hashes[: tile.width]

    def _report_tile(self, tile: Tile, data: bytes, hashes: Hashes) -> None:
        name = self._parts.tile_name(tile)
        wrong = list(_wrong_places(tile, data, hashes))
        for place in wrong[:_NAMED]:
            self._found.fault(
                "STO-L032",
                name,
                "is not what the tree was built of",
                place=_place_name(tile, place),
                remedy=_tile_remedy(name, self._rows),
            )
        if len(wrong) > _NAMED:
            self._count_others(name, tile.index, wrong)
        if not wrong:
            self._found.fault(
                "STO-L032",
                name,
                f"has {len(data)} bytes, which is not its length",
                remedy=_tile_remedy(name, self._rows),
            )

    def _report_beyond(self) -> None:
        """Report stored tiles that lie beyond every leaf known."""
        for place in sorted(self._stored):
            for width in sorted(self._stored[place]):
                name = self._parts.tile_name(Tile(place.level, place.index, width))
                if self._parts.paths is None:  # a crash before its checkpoint, perhaps
                    self._found.notice(
                        "STO-L096", name, "lies beyond the published checkpoint"
                    )
                    continue
                self._found.fault(
                    "STO-L047",
                    name,
                    f"lies beyond the {self._size} leaves of the databases",
                    remedy="restore the newest backup of both databases",
                )


def _confirmed(settled: Settled) -> str:
    if settled.is_certain:
        return "that the tree was built of"
    return "that most other copies show; nothing confirms either"


def _bundle_of(leaves: Sequence[bytes | None]) -> bytes | None:
    known = [leaf for leaf in leaves if leaf is not None]
    return encode_bundle(known) if known and len(known) == len(leaves) else None


def _hash_bundle(data: bytes, width: int) -> Hashes:
    """Return the hashes of a bundle's leaves, and one of nothing for bytes left over."""
    entries = read_bundle(data, width)
    over = len(data) - sum(map(len, entries)) - 2 * len(entries)
    return [*leaf_hashes(entries), *([None] if over else [])]


def _wrong_places(tile: Tile, data: bytes, hashes: Hashes) -> Iterable[int]:
    if tile.level == ENTRIES:
        held: Hashes = [leaf_hash(one) for one in read_bundle(data, tile.width)]
    else:
        held = split_hashes(data)
    for place in range(tile.width):
        if place >= len(held) or held[place] != hashes[place]:
            yield place


def _place_name(tile: Tile, place: int) -> str:
    at = tile.index * TILE_WIDTH + place
    if tile.level <= 0:
        kind = "entry" if tile.level == ENTRIES else "hash"
        return f"{kind} {place} (leaf {at})"
    below = TILE_WIDTH**tile.level
    return f"hash {place} (leaves {at * below} to {(at + 1) * below - 1})"


def _tile_remedy(name: str, rows: LeafRows | None) -> str:
    follows = " (its contents follow from the log database)" if rows else ""
    return f"restore {name} from a backup or a mirror of the log{follows}"


def check_roots(
    parts: LogParts, states: States, anchor: Anchor | None, result: TreeResult
) -> bool:
    """Report recorded roots that the tree does not have.

    Returns whether the tree has a signed root (an empty, unpublished log has none).
    """
    is_proven = False
    if anchor is not None:
        derived = _derived(result, anchor.checkpoint.size)
        is_proven = anchor.signed is not None and derived == anchor.checkpoint.root
        if derived != anchor.checkpoint.root:
            _report_published(parts, anchor, derived)
    if parts.paths is not None:
        _check_databases(parts, states, anchor, result)
    return is_proven


def _derived(result: TreeResult, size: int) -> bytes | None:
    return result.roots.get(size) if size else EMPTY_ROOT


def _report_published(parts: LogParts, anchor: Anchor, derived: bytes | None) -> None:
    size = anchor.checkpoint.size
    if derived is None:
        text = f"not every one of its {size} leaves is left in some copy"
    else:
        text = f"the {size} leaves lead to another root, in whatever copies there are"
    parts.found.fault(
        "STO-L033",
        anchor.file,
        text,
        remedy="restore databases and log directory from the same moment",
    )


def _check_databases(
    parts: LogParts, states: States, anchor: Anchor | None, result: TreeResult
) -> None:
    assert parts.paths is not None  # noqa: S101 - the caller looked
    wrong: list[tuple[str, str, str]] = []
    if states.head is not None:
        size = states.head.head.size
        if _derived(result, size) != states.head.head.root:
            file = parts.name(parts.paths.head)
            wrong.append((file, "table head, row 1", f"its root of {size} leaves"))
    if states.log is not None:
        size, file = states.log.frontier.size, parts.name(parts.paths.database)
        if _derived(result, size) != states.log.root:
            wrong.append((file, "table state, row 1", f"its root of {size} leaves"))
        is_last = anchor is None or anchor.checkpoint.size <= size
        if is_last and result.frontier not in {None, states.log.frontier.hashes}:
            wrong.append((file, "table state, row 1", "its frontier"))
    for file, place, what in wrong:
        parts.found.fault(
            "STO-L044" if "head" in place else "STO-L049",
            file,
            f"{what} is not that of the leaves{_suspects(states, anchor, wrong)}",
            place=place,
            remedy=f"restore the newest backup of {file}",
        )


def _suspects(
    states: States, anchor: Anchor | None, wrong: list[tuple[str, str, str]]
) -> str:
    """Say where the fault must lie when both databases remember another root."""
    if len({file for file, _, _ in wrong}) < 2 or states.log is None:  # noqa: PLR2004 - both of two
        return ""
    start = anchor.checkpoint.size if anchor else 0
    end = states.log.frontier.size
    if start >= end:
        return ""
    return (
        f"; both databases remember another one, so a row of leaves {start} to {end - 1} "
        "was changed, which no tile covers yet"
    )
