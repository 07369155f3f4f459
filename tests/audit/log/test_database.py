from collections.abc import Iterator
from pathlib import Path

import pytest

from stoilo.audit.format.merkle import Frontier, leaf_hash
from stoilo.audit.log import database as places_module
from stoilo.audit.log.database import LogDatabase, NewLeaf
from stoilo.core.errors import TrustError


@pytest.fixture
def base(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[LogDatabase]:
    monkeypatch.setattr(places_module, "_TAIL_LEAVES", 10)
    database = LogDatabase(tmp_path / "log.sqlite")
    database.create("log.test/t")
    yield database
    database.close()


def fill(base: LogDatabase, start: int, end: int) -> None:
    state = base.load()
    assert state is not None
    leaves = [b"leaf %d" % number for number in range(start, end)]
    fresh = [NewLeaf(start + n, leaf_hash(leaf), leaf) for n, leaf in enumerate(leaves)]
    frontier = state.frontier.extend(item.hash for item in fresh)
    base.commit(fresh, [], frontier)


def places(base: LogDatabase, *numbers: int) -> list[int]:
    hashes = [leaf_hash(b"leaf %d" % number) for number in numbers]
    found = base.find(hashes)
    return [found[one] for one in hashes]


def test_places_are_found_in_memory_in_the_index_and_after_reopening(
    base: LogDatabase, tmp_path: Path
) -> None:
    fill(base, 0, 12)
    base.move_tail()
    fill(base, 12, 17)
    base.move_tail()
    assert places(base, 0, 11, 12, 16) == [0, 11, 12, 16]
    base.close()
    again = LogDatabase(tmp_path / "log.sqlite")
    assert places(again, 0, 11, 12, 16) == [0, 11, 12, 16]
    assert again.find([leaf_hash(b"unknown")]) == {}
    again.close()


def test_tail_lost_before_it_was_indexed_is_read_back(
    base: LogDatabase, tmp_path: Path
) -> None:
    fill(base, 0, 30)
    base.close()  # as a crash would, without moving the tail
    again = LogDatabase(tmp_path / "log.sqlite")
    assert places(again, 0, 29) == [0, 29]
    again.close()


def test_wrong_index_is_noticed_when_it_is_used(base: LogDatabase) -> None:
    fill(base, 0, 12)
    base.move_tail()
    base._write().execute("UPDATE places SET idx = 3 WHERE idx = 4")
    with pytest.raises(TrustError, match="STO-L049"):
        places(base, 4)


def test_failed_transaction_leaves_nothing(base: LogDatabase) -> None:
    fill(base, 0, 3)
    twice = NewLeaf(2, leaf_hash(b"x"), b"x")
    with pytest.raises(Exception, match="UNIQUE"):
        base.commit([NewLeaf(3, leaf_hash(b"y"), b"y"), twice], [], Frontier(5))
    state = base.load()
    assert state is not None
    assert (state.frontier.size, len(base.leaves(0, 9))) == (3, 3)
    assert base.find([leaf_hash(b"y")]) == {}


def test_commit_that_does_not_follow_the_last_one_is_refused(base: LogDatabase) -> None:
    fill(base, 0, 3)
    with pytest.raises(TrustError, match="STO-L053"):
        base.commit([NewLeaf(4, leaf_hash(b"y"), b"y")], [], Frontier(5))
    assert len(base.leaves(0, 9)) == 3
