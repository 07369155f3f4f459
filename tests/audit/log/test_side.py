from __future__ import annotations

import sqlite3
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stoilo.audit.format.facts import MentionKind, PolicyRecord
from stoilo.audit.format.proof import parse_leaf
from stoilo.audit.format.records import (
    Mention,
    parse_record,
    record_leaf,
    render_record,
)
from stoilo.audit.log.fsck import find_unfit_leaves
from stoilo.audit.log.side import (
    ObjectKind,
    SideObject,
    SideStore,
    parse_records,
    render_records,
    side_path,
)
from stoilo.core.digests import content_digest
from stoilo.core.errors import StoiloError, TrustError, UnreachableError

RECORD, SOURCE = ObjectKind.RECORD, ObjectKind.SOURCE
TEXT = b"def task(kwargs):\n    return 1\n"
NAME = content_digest(TEXT)


def policy_record(number: int) -> bytes:
    return render_record(PolicyRecord("log.test/t", number, "in_force", "a" * 64))


DATA = [policy_record(number) for number in range(5)]
LEAVES = [record_leaf(data, "1") for data in DATA]


@pytest.fixture
def side(tmp_path: Path) -> SideStore:
    """Return a store with five records, all in the index, and one source."""
    store = SideStore.open(tmp_path)
    store.put([SideObject(RECORD, data) for data in DATA], 1)
    store.put([SideObject(SOURCE, TEXT)], 1)
    store.index([(place, parse_record(data)) for place, data in enumerate(DATA)])
    return store


def test_objects_are_found_by_their_digests_also_by_a_reader(
    side: SideStore, tmp_path: Path
) -> None:
    digest = parse_leaf(LEAVES[3]).digest
    assert side.get(RECORD, digest) == DATA[3]
    reader = SideStore.read_file(side_path(tmp_path))
    assert (reader.get(SOURCE, NAME), reader.get(RECORD, NAME)) == (TEXT, None)
    reader.close()


def test_reader_without_a_store_is_told_so(tmp_path: Path) -> None:
    with pytest.raises(UnreachableError, match="STO-L002"):
        SideStore.read_file(side_path(tmp_path))


def test_store_of_another_version_is_refused(side: SideStore, tmp_path: Path) -> None:
    side.close()
    with sqlite3.connect(side_path(tmp_path)) as raw:
        raw.execute("PRAGMA user_version = 9")
    raw.close()
    with pytest.raises(TrustError, match="STO-L049"):
        SideStore.open(tmp_path)


def test_records_of_leaves_come_in_order_with_gaps(side: SideStore) -> None:
    admission = LEAVES[0].replace(b"policy", b"admission").replace(b"a", b"b")
    found = side.records_of([LEAVES[1], admission, b"not ours", LEAVES[4]])
    assert found == [DATA[1], None, None, DATA[4]]


def test_mention_leads_to_places(side: SideStore) -> None:
    mention = Mention(MentionKind.DIGEST, "a" * 64)
    assert side.find_newest(mention, end=9) == [4, 3, 2, 1, 0]
    assert side.find_newest(mention, end=4, limit=2) == [3, 2]
    assert side.find_newest(Mention(MentionKind.COMMITMENT, "a" * 64), end=9) == []


def test_changed_object_is_refused_with_its_name(side: SideStore) -> None:
    side._connection.execute("UPDATE object SET data = ? WHERE kind = 2", (b"evil",))
    with pytest.raises(TrustError, match=f"STO-L141.*{NAME}|{NAME}.*STO-L141"):
        side.get(SOURCE, NAME)
    assert [where for where, _ in side.scrub()] == [f"source {NAME}"]


def test_deleted_source_leaves_a_mark_and_no_bytes(
    side: SideStore, tmp_path: Path
) -> None:
    assert side.delete([NAME, "b" * 64], 5) == 1
    assert (side.get(SOURCE, NAME), side.was_deleted(SOURCE, NAME)) == (None, True)
    assert not side.was_deleted(SOURCE, "b" * 64)
    side.close()
    files = [path.read_bytes() for path in side_path(tmp_path).parent.iterdir()]
    assert not any(TEXT in data for data in files)


def test_source_that_is_published_again_comes_back(side: SideStore) -> None:
    side.delete([NAME], 5)
    side.put([SideObject(SOURCE, TEXT)], 6)
    assert (side.get(SOURCE, NAME), side.was_deleted(SOURCE, NAME)) == (TEXT, False)


def test_sound_store_has_no_fault(side: SideStore) -> None:
    assert list(side.scrub()) == []
    assert not any(fault for _, fault in find_unfit_leaves(side, enumerate(LEAVES)))


def test_missing_record_and_missing_index_are_found(side: SideStore) -> None:
    digest = bytes.fromhex(parse_leaf(LEAVES[2]).digest)
    side._connection.execute("DELETE FROM object WHERE digest = ?", (digest,))
    side._connection.execute("DELETE FROM mention WHERE place = 3")
    found = find_unfit_leaves(side, enumerate(LEAVES))
    assert [place for place, fault in found if fault] == [2, 3]


def test_flipped_byte_of_a_source_is_found(side: SideStore, tmp_path: Path) -> None:
    side._connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    side.close()
    path = side_path(tmp_path)
    good = path.read_bytes()
    for needle in (TEXT[:8], TEXT[-8:]):
        place = good.index(needle) + len(needle) // 2
        path.write_bytes(good[:place] + bytes([good[place] ^ 4]) + good[place + 1 :])
        assert is_faulty(tmp_path), needle


def is_faulty(data_dir: Path) -> bool:
    try:
        store = SideStore.read_file(side_path(data_dir))
        found = list(store.scrub())
        store.close()
    except StoiloError:
        return True
    return bool(found)


@given(st.lists(st.none() | st.binary(min_size=1, max_size=40), max_size=256))
def test_records_of_a_tile_are_read_back(records: list[bytes | None]) -> None:
    assert parse_records(render_records(records)) == records


@given(st.binary(max_size=80))
def test_any_bytes_are_records_of_a_tile_or_our_error(data: bytes) -> None:
    try:
        assert render_records(parse_records(data)) == data
    except TrustError as error:
        assert error.code == "STO-L010"


@pytest.mark.parametrize(
    "data", [b"\0", b"\0\5abc", b"\0\0" * 257, b"\xff\xff" + b"x" * 65535]
)
def test_cut_or_too_long_records_are_refused(data: bytes) -> None:
    with pytest.raises(TrustError, match="STO-L010"):
        parse_records(data)
