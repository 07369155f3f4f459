import sqlite3

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from stoilo.audit.format.merkle import leaf_hash, range_root
from stoilo.audit.monitor.state import MIRROR_SCHEMA, Mirror
from stoilo.core.errors import TrustError
from tests.support.memory_tree import MemoryTree


def make(size: int = 0) -> Mirror:
    connection = sqlite3.connect(":memory:", isolation_level=None)
    connection.executescript(MIRROR_SCHEMA)
    mirror = Mirror(connection, 0)
    mirror.extend([leaf_hash(b"%d" % n) for n in range(size)])
    return mirror


HASHES = [leaf_hash(b"%d" % n) for n in range(66_000)]


@settings(max_examples=40, deadline=None)
@given(st.lists(st.integers(0, 600), max_size=6), st.data())
def test_root_of_every_size_is_the_tree_s(
    steps: list[int], data: st.DataObject
) -> None:
    mirror, tree = make(), MemoryTree()
    for step in steps:
        fresh = HASHES[mirror.size : mirror.size + step]
        mirror.extend(fresh)
        for one in fresh:
            tree.append(one)
    size = data.draw(st.integers(0, tree.size))
    assert mirror.root_at(size) == range_root(0, size, tree.node)


@pytest.mark.parametrize("size", [255, 256, 257, 65_535, 65_536, 65_537])
def test_tile_boundaries(size: int) -> None:
    mirror, tree = make(), MemoryTree(HASHES[:size])
    mirror.extend(HASHES[: size // 2])
    mirror.extend(HASHES[size // 2 : size])
    for part in (size, size - 1, size // 3):
        assert mirror.root_at(part) == range_root(0, part, tree.node)


def test_mirror_goes_on_where_another_left_off() -> None:
    first = make(300)
    second = Mirror(first._connection, 300)
    second.extend(HASHES[300:700])
    tree = MemoryTree(HASHES[:700])
    assert second.root_at(700) == range_root(0, 700, tree.node)


def test_lost_tile_is_named() -> None:
    mirror = make(300)
    mirror._connection.execute("DELETE FROM tile WHERE level = 0 AND place = 0")
    with pytest.raises(TrustError, match="STO-L124"):
        mirror.root_at(17)
