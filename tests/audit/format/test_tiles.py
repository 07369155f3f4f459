import pytest
from hypothesis import given
from hypothesis import strategies as st

from stoilo.audit.format.merkle import Frontier, leaf_hash
from stoilo.audit.format.tiles import (
    ENTRIES,
    Tile,
    TileBuilder,
    decode_bundle,
    encode_bundle,
    parse_tile_path,
    render_tile_path,
)
from stoilo.core.errors import TrustError
from tests.support.memory_tree import tiles_of

# The boundaries at which tiles and levels fill.
SIZES = [0, 1, 2, 255, 256, 257, 511, 512, 65_535, 65_536, 65_537]


@pytest.mark.parametrize(
    ("tile", "path"),
    [
        (Tile(0, 1_234_067), "tile/0/x001/x234/067"),
        (Tile(0, 0), "tile/0/000"),
        (Tile(1, 999, 17), "tile/1/999.p/17"),
        (Tile(ENTRIES, 1000), "tile/entries/x001/000"),
        (Tile(ENTRIES, 273, 112), "tile/entries/273.p/112"),
    ],
)
def test_tile_path_is_that_of_the_specification(tile: Tile, path: str) -> None:
    assert render_tile_path(tile) == path
    assert parse_tile_path(path) == tile


@pytest.mark.parametrize(
    "path",
    [
        "tile/0/0",
        "tile/0/1234",
        "tile/0/x000/001",
        "tile/00/000",
        "tile/64/000",
        "tile/0/000.p/0",
        "tile/0/000.p/256",
        "tile/0/000.p/01",
        "tile/0/../000",
        "tile/0/000\n",
        "checkpoint",
    ],
)
def test_other_path_is_refused(path: str) -> None:
    with pytest.raises(TrustError, match="STO-L010"):
        parse_tile_path(path)


@given(st.integers(-1, 7), st.integers(0, 10**15), st.integers(1, 256))
def test_every_tile_name_is_read_back(level: int, index: int, width: int) -> None:
    tile = Tile(level, index, width)
    assert parse_tile_path(render_tile_path(tile)) == tile


def test_seventy_thousand_leaves_have_the_tiles_of_the_specification() -> None:
    tiles = [tile for tile in tiles_of(70_000) if tile.level != ENTRIES]
    full = [tile for tile in tiles if tile.width == 256]
    assert len([tile for tile in full if tile.level == 0]) == 273
    assert [tile for tile in full if tile.level == 1] == [Tile(1, 0)]
    partial = [tile for tile in tiles if tile.width < 256]
    assert partial == [Tile(0, 273, 112), Tile(1, 1, 17), Tile(2, 0, 1)]


def test_size_256_is_a_full_tile_and_one_hash_above() -> None:
    assert tiles_of(256) == [Tile(ENTRIES, 0), Tile(0, 0), Tile(1, 0, 1)]


def test_builder_makes_the_tiles_and_roots_of_every_boundary() -> None:
    builder, frontier = TileBuilder(), Frontier()
    full: set[Tile] = set()
    for size in range(SIZES[-1] + 1):
        if size in SIZES:
            partial = {tile for tile, _ in builder.partial()}
            assert full | partial == set(tiles_of(size))
            assert builder.root() == frontier.root()
        leaf = b"%d" % size
        full |= {tile for tile, _ in builder.extend([leaf])}
        frontier = frontier.extend([leaf_hash(leaf)])


@given(st.lists(st.binary(max_size=300), max_size=256))
def test_bundle_is_read_back(entries: list[bytes]) -> None:
    assert decode_bundle(encode_bundle(entries), len(entries)) == entries


@given(st.binary(max_size=600), st.integers(1, 256))
def test_any_bundle_reads_or_raises_trust_error(data: bytes, width: int) -> None:
    try:
        entries = decode_bundle(data, width)
    except TrustError:
        return
    assert data.startswith(encode_bundle(entries))
    assert len(entries) == width


@pytest.mark.parametrize("entry", [b"", b"x" * 65_535])
def test_extreme_entry_is_read_back(entry: bytes) -> None:
    assert decode_bundle(encode_bundle([entry]), 1) == [entry]
