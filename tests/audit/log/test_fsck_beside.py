"""Every leaf has its record, and the index leads to it."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from stoilo.audit.log.fsck import find_unfit_leaves
from stoilo.audit.log.side import SideStore, side_path
from stoilo.audit.log.sqlite import connect
from stoilo.audit.read.reader import open_log
from tests.support.auditlog import SampleLog, write_sample_log

CHANGES = {
    "a record": "UPDATE object SET data = data || x'20' WHERE kind = 1 AND rowid = 1",
    "a lost record": "DELETE FROM object WHERE kind = 1 AND rowid = 2",
    "a lost row": "DELETE FROM mention WHERE key = (SELECT max(key) FROM mention)",
    "another place": "UPDATE mention SET place = 0 WHERE key = "
    "(SELECT min(key) FROM mention WHERE place > 0)",
    "another key": "UPDATE mention SET key = x'00' || substr(key, 2) WHERE key = "
    "(SELECT max(key) FROM mention)",
    "a place that is none": "UPDATE mention SET place = 'x' WHERE key = "
    "(SELECT max(key) FROM mention)",
}


@pytest.fixture
def sample(tmp_path: Path) -> SampleLog:
    return write_sample_log(tmp_path, tasks=3)


@pytest.fixture
def leaves(sample: SampleLog) -> list[tuple[int, bytes]]:
    log = open_log(sample.data_dir, sample.policy)
    return [(place, log.prove(place)[0]) for place in range(sample.size)]


@pytest.fixture
def side(sample: SampleLog) -> Iterator[SideStore]:
    store = SideStore.read_file(side_path(sample.data_dir))
    yield store
    store.close()


def faults(side: SideStore, leaves: list[tuple[int, bytes]]) -> list[str]:
    return [fault for _, fault in find_unfit_leaves(side, leaves) if fault]


def test_sound_store_is_right(side: SideStore, leaves: list[tuple[int, bytes]]) -> None:
    assert faults(side, leaves) == []


@pytest.mark.parametrize("change", CHANGES)
def test_changed_store_is_not_right(
    sample: SampleLog, leaves: list[tuple[int, bytes]], change: str
) -> None:
    connection = connect(side_path(sample.data_dir))
    assert connection.execute(CHANGES[change]).rowcount == 1
    connection.close()
    side = SideStore.read_file(side_path(sample.data_dir))
    assert faults(side, leaves)
    side.close()


def test_leaf_that_is_none_is_not_right(side: SideStore) -> None:
    assert faults(side, [(0, b"no leaf")])
