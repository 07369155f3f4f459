"""Which copy of a block is right, and the tree above blocks."""

from hypothesis import given, settings
from hypothesis import strategies as st

from stoilo.audit.format.merkle import Frontier, leaf_hash, root
from stoilo.audit.format.tiles import (
    TILE_WIDTH,
    BlockTree,
    TileBuilder,
    encode_bundle,
    split_bundle,
)
from stoilo.audit.log.fsck_tree import Hashes, complete, settle

LEAVES = [b"%d" % number for number in range(TILE_WIDTH)]
HASHES = [leaf_hash(leaf) for leaf in LEAVES]
ROOT = root(HASHES)


def is_right(hashes: list[bytes]) -> bool:
    return root(hashes) == ROOT


def changed(places: set[int]) -> Hashes:
    return [
        leaf_hash(b"other") if at in places else one for at, one in enumerate(HASHES)
    ]


def test_equal_copies_are_certain_without_asking() -> None:
    assert settle([[*HASHES], [*HASHES]], TILE_WIDTH) == HASHES


@given(st.integers(0, 2), st.sets(st.integers(0, 255), min_size=1, max_size=20))
def test_two_of_three_copies_outvote_the_other(bad: int, places: set[int]) -> None:
    copies: list[Hashes] = [[*HASHES], [*HASHES], [*HASHES]]
    copies[bad] = changed(places)
    assert settle(copies, TILE_WIDTH) == HASHES


@settings(max_examples=30)
@given(st.booleans(), st.sets(st.integers(0, 255), min_size=1))
def test_the_tree_above_decides_between_two(first: bool, places: set[int]) -> None:
    copies = [changed(places), [*HASHES]]
    found = settle(copies if first else copies[::-1], TILE_WIDTH, is_right)
    assert found == HASHES


@settings(max_examples=30)
@given(st.integers(0, 254), st.integers(1, 255))
def test_copies_damaged_in_different_places_make_one_good(one: int, step: int) -> None:
    two = (one + step) % TILE_WIDTH
    found = settle([changed({one}), changed({two})], TILE_WIDTH, is_right)
    assert found == HASHES


def test_nothing_right_leaves_what_most_say() -> None:
    """The negative control: nothing confirms a mixture, so none is made up."""
    copies = [changed({1}), changed({2})]
    assert settle(copies, TILE_WIDTH, lambda _: False) == copies[0]


def test_missing_copies_leave_holes() -> None:
    found = settle([[None, HASHES[1]], []], 3)
    assert found == [None, HASHES[1], None]
    assert complete(found) is None


@given(st.binary(max_size=600), st.integers(1, 256))
def test_any_bundle_is_read_as_far_as_it_goes(data: bytes, width: int) -> None:
    entries, _ = split_bundle(data, width)
    assert len(entries) <= width
    assert data.startswith(encode_bundle(entries))


@settings(deadline=None, max_examples=5)
@given(st.sampled_from([0, 1, 2, 255, 256, 257]), st.integers(0, 255))
def test_tree_above_blocks_equals_the_log_s_own(blocks: int, rest: int) -> None:
    tree, builder = BlockTree(), TileBuilder()
    frontier = Frontier().extend(HASHES * blocks + HASHES[:rest])
    done = [item for _ in range(blocks) for item in tree.add(ROOT)]
    assert tree.frontier(HASHES[:rest]) == frontier
    theirs = [item for leaf in LEAVES * blocks for item in builder.extend([leaf])]
    assert done == [item for item in theirs if item[0].level > 0]
    partial = [item for item in builder.partial() if item[0].level > 0]
    assert list(tree.partial()) == partial
