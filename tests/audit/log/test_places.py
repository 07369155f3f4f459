"""A repeated leaf is found in memory, while its place moves, in the table, after a crash."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from stoilo.audit.format.merkle import Frontier, leaf_hash
from stoilo.audit.log import database as places
from stoilo.audit.log.database import LogDatabase, NewLeaf


@pytest.fixture
def base(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[LogDatabase]:
    monkeypatch.setattr(places, "_TAIL_LEAVES", 100)
    monkeypatch.setattr(places, "_SLICE_LEAVES", 8)
    database = LogDatabase(tmp_path / "log.sqlite")
    database.create("log.test/t")
    yield database
    database.close()


def fill(base: LogDatabase, start: int, end: int) -> None:
    leaves = [NewLeaf(n, leaf_hash(b"%d" % n), b"%d" % n) for n in range(start, end)]
    state = base.load()
    frontier = (state.frontier if state else Frontier()).extend(
        one.hash for one in leaves
    )
    base.commit(leaves, [], frontier)


def assert_all_found(base: LogDatabase, size: int) -> None:
    hashes = [leaf_hash(b"%d" % number) for number in range(size)]
    found = base.find([*hashes, leaf_hash(b"unknown")])
    assert [found[one] for one in hashes] == list(range(size))
    assert len(found) == size


def count_of_table(base: LogDatabase) -> int:
    query = "SELECT count(*) FROM places"
    return int(base._write().execute(query).fetchone()[0])


def test_every_leaf_is_found_at_every_stage_of_moving(base: LogDatabase) -> None:
    stages = set()
    for start in range(0, 600, 10):
        fill(base, start, start + 10)
        base.move_tail()
        stages.add(count_of_table(base))
        assert_all_found(base, start + 10)
    assert len(stages) > 10
    assert max(stages) >= 400


def test_half_moved_places_are_found_after_a_crash(
    base: LogDatabase, tmp_path: Path
) -> None:
    fill(base, 0, 120)
    base.move_tail()
    fill(base, 120, 125)
    base.move_tail()
    base.close()
    again = LogDatabase(tmp_path / "log.sqlite")
    assert_all_found(again, 125)
    again.close()


def test_memory_is_bounded_when_leaves_come_faster_than_slices(
    base: LogDatabase,
) -> None:
    for start in range(0, 5000, 50):
        fill(base, start, start + 50)
        base.move_tail()
        index = base._places
        assert len(index._moving) + len(index._tail or ()) <= 300


def test_moving_leaves_commits_flushed(base: LogDatabase) -> None:
    fill(base, 0, 120)
    base.move_tail()
    query = "PRAGMA synchronous"
    assert base._write().execute(query).fetchone() == (2,)
    assert count_of_table(base) > 0
