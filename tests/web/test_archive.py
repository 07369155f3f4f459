"""What the pages read: under one checkpoint, and checked again."""

import sqlite3

import pytest

from stoilo.audit.format.facts import FlavorRecord, MentionKind
from stoilo.audit.format.proof import Leaf, LeafKind, render_leaf
from stoilo.audit.format.records import Mention
from stoilo.audit.log.side import side_path
from stoilo.core.errors import TrustError, UnreachableError
from stoilo.web.archive import look
from tests.support.archive import ORIGIN, ArchiveWriter

HEX = "ab" * 32
SOURCE = b"def task(kwargs):\n    return 1\n"


@pytest.fixture
def writer(tmp_path):
    with ArchiveWriter(tmp_path / "data") as archive:
        yield archive


def flavor(writer, name="pure"):
    record = FlavorRecord(ORIGIN, writer.now, change="released", name=name, flavor=HEX)
    return writer.add(record)


def damage(writer, query, *values):
    with sqlite3.connect(side_path(writer.data)) as connection:
        connection.execute(query, values)
    connection.close()


@pytest.mark.parametrize("made", [False, True])
def test_log_without_checkpoint_is_unreachable(tmp_path, made):
    if made:
        (tmp_path / "data" / "audit" / "log").mkdir(parents=True)
    with (
        pytest.raises(UnreachableError, match="STO-L056"),
        look(tmp_path / "data"),
    ):
        pass


def test_entry_comes_with_its_record(writer):
    place = flavor(writer)
    with look(writer.data) as view:
        entry = view.entry(place)
    assert (entry.record.name, entry.fault) == ("pure", "")


@pytest.mark.parametrize("place", [-1, 1, 10**17])
def test_place_outside_the_log_has_no_entry(writer, place):
    flavor(writer)
    with look(writer.data) as view:
        assert view.entry(place) is None


def test_entry_appended_after_the_look_is_not_seen(writer):
    flavor(writer)
    with look(writer.data) as view:
        place = flavor(writer, "later")
        assert view.entry(place) is None
        assert len(view.find(Mention(MentionKind.DIGEST, HEX))) == 1


def test_newest_come_first_and_as_many_as_asked(writer):
    for _ in range(3):
        flavor(writer)
    with look(writer.data) as view:
        assert [entry.index for entry in view.newest(view.size, 2)] == [2, 1]
        assert [entry.index for entry in view.newest(1, 9)] == [0]


def test_entries_beyond_one_bundle_are_read(writer):
    leaves = [b"leaf %d" % n for n in range(300)]
    writer.add_leaves(leaves)
    with look(writer.data) as view:
        assert [entry.data for entry in view.newest(300, 60)] == leaves[:239:-1]


def test_finds_come_newest_first_and_go_on_below(writer):
    places = [flavor(writer) for _ in range(4)]
    mention = Mention(MentionKind.DIGEST, HEX)
    with look(writer.data) as view:
        first = [entry.index for entry in view.find(mention, limit=2)]
        rest = [entry.index for entry in view.find(mention, before=first[-1])]
    assert first + rest == places[::-1]


def test_changed_record_is_a_fault_and_not_shown(writer):
    place = flavor(writer)
    damage(writer, "UPDATE object SET data = ? WHERE kind = 1", b'{"record":"x"}')
    with look(writer.data) as view:
        entry = view.entry(place)
    assert entry.record is None
    assert "does not have this digest" in entry.fault


def test_lost_record_is_a_fault(writer):
    place = flavor(writer)
    damage(writer, "DELETE FROM object")
    with look(writer.data) as view:
        assert view.entry(place).fault == "its record is not in the side store"


def test_changed_source_is_never_given(writer):
    record = writer.admit("t", SOURCE)
    damage(writer, "UPDATE object SET data = ? WHERE kind = 2", b"import os\n")
    with look(writer.data) as view, pytest.raises(TrustError, match="STO-L141"):
        view.source(record.source)


def test_deleted_source_is_known_to_have_been_there(writer):
    record = writer.admit("t", SOURCE)
    writer.side.delete([record.source], writer.now)
    with look(writer.data) as view:
        assert view.source(record.source) is None
        assert view.was_deleted(record.source)
        assert not view.was_deleted(HEX)


def test_log_without_side_store_still_shows_its_leaves(writer):
    place = flavor(writer)
    writer.side.close()
    side_path(writer.data).unlink()
    with look(writer.data) as view:
        assert view.entry(place).fault
        assert view.find(Mention(MentionKind.DIGEST, HEX)) == []


def test_admission_needs_no_record(writer):
    place = writer.add_leaf(render_leaf(Leaf(LeafKind.ADMISSION, HEX, "1", 5)))
    with look(writer.data) as view:
        assert view.entry(place).fault == ""


def test_signature_of_another_key_is_a_fault(writer):
    flavor(writer)
    policy = writer.data / "audit" / "log" / "policy.txt"
    other = ArchiveWriter(
        writer.data.parent / "other", type(writer.key)(ORIGIN, b"\5" * 32)
    )
    other.close()
    policy.write_bytes((other.data / "audit" / "log" / "policy.txt").read_bytes())
    with look(writer.data) as view:
        assert "no trusted log signed" in view.head.fault


@pytest.mark.parametrize("text", [None, b"log nonsense\n"])
def test_missing_or_broken_policy_is_a_fault(writer, text):
    flavor(writer)
    policy = writer.data / "audit" / "log" / "policy.txt"
    policy.write_bytes(text) if text else policy.unlink()
    with look(writer.data) as view:
        assert view.head.fault
        assert view.head.witnesses == ()
