import pytest
from hypothesis import given
from hypothesis import strategies as st

from stoilo.audit.format.merkle import inclusion_proof, leaf_hash
from stoilo.audit.format.tiles import (
    Tile,
    TileBuilder,
    TileNodes,
    inclusion_proofs,
    tile_at,
)
from stoilo.core.errors import TrustError
from tests.support.memory_tree import MemoryTree

SIZE = 70_000


class MemoryTiles:
    """The tiles of one large log, full and partial, as a reader would fetch them."""

    def __init__(self, size: int) -> None:
        self.tree, self._tiles = MemoryTree(), dict[Tile, bytes]()
        builder = TileBuilder()
        for number in range(size):
            leaf = b"%d" % number
            self.tree.append(leaf_hash(leaf))
            self._tiles.update(builder.extend([leaf]))
        self._tiles.update(builder.partial())

    def read(self, tile: Tile) -> bytes | None:
        return self._tiles.get(tile)


TILES = MemoryTiles(SIZE)


@given(st.integers(0, SIZE - 1))
def test_proof_from_tiles_is_the_proof_from_memory(index: int) -> None:
    nodes = TileNodes(TILES.read)
    path = inclusion_proof(index, SIZE, lambda level, at: nodes.node(level, at, SIZE))
    assert path == inclusion_proof(index, SIZE, TILES.tree.node)


def test_full_tile_stands_in_for_a_partial_one() -> None:
    nodes = TileNodes(TILES.read)
    assert tile_at(0, 1, 300).width == 44  # no such partial tile is there
    assert nodes.node(2, 66, 300) == TILES.tree.node(2, 66)


@pytest.mark.parametrize("answer", [None, b"", bytes(32)])
def test_missing_or_short_tile_is_refused(answer: bytes | None) -> None:
    nodes = TileNodes(lambda _: answer)
    with pytest.raises(TrustError, match="STO-L032"):
        nodes.node(0, 1, 2)


@given(st.lists(st.integers(0, SIZE - 1), max_size=20), st.integers(0, 3))
def test_proofs_of_many_are_the_proofs_of_each(some: list[int], edge: int) -> None:
    wanted = [*some, *range(SIZE - edge, SIZE)]
    nodes = TileNodes(TILES.read)
    paths = inclusion_proofs(
        wanted, SIZE, lambda level, at: nodes.node(level, at, SIZE)
    )
    assert paths == {
        index: inclusion_proof(index, SIZE, TILES.tree.node) for index in wanted
    }


@given(st.integers(1, 70), st.data())
def test_proofs_of_many_hold_in_trees_of_any_size(
    size: int, data: st.DataObject
) -> None:
    tree = MemoryTree(leaf_hash(b"%d" % number) for number in range(size))
    wanted = data.draw(st.sets(st.integers(0, size - 1)))
    assert inclusion_proofs(wanted, size, tree.node) == {
        index: inclusion_proof(index, size, tree.node) for index in wanted
    }


@pytest.mark.parametrize("wanted", [[-1], [0, 5], [5]])
def test_proofs_of_many_are_refused_when_the_tree_lacks_one(wanted: list[int]) -> None:
    with pytest.raises(TrustError, match="STO-L023"):
        inclusion_proofs(wanted, 5, TILES.tree.node)
