"""fsck of what lies beside the log: records, sources, checkpoints seen."""

import sqlite3
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import pytest

from stoilo.audit.format.facts import OperatorAct, OperatorRecord
from stoilo.audit.format.proof import Leaf, LeafKind, render_leaf
from stoilo.audit.format.records import parse_record, record_leaf, render_record
from stoilo.audit.log.fsck import fsck_log
from stoilo.audit.log.fsck_parts import Fault
from stoilo.audit.log.seen import SeenRow, SeenStore, result_commitment
from stoilo.audit.log.sequencer import Sequencer
from stoilo.audit.log.side import ObjectKind, SideObject, SideStore
from stoilo.core.digests import content_digest
from tests.support.faulty_log import LogKey

Opener = Callable[..., Sequencer]
SIDE, SEEN = "audit/side.sqlite", "audit/seen.sqlite"
SOURCE = b"def f():\n    return 1\n"


def record_of(number: int) -> bytes:
    subject = content_digest(b"%d" % number)
    act = OperatorAct.SERVER_STARTED
    return render_record(
        OperatorRecord(origin="log.test/t", time=number, act=act, subject=subject)
    )


RECORDS = [record_of(number) for number in range(10)]


@pytest.fixture
def recorded(tmp_path: Path, open_log: Opener) -> Path:
    """Return a data directory whose ten leaves have records, and one source."""
    data_dir = tmp_path / "data"
    with closing(SideStore.open(data_dir)) as side:
        side.put([SideObject(ObjectKind.RECORD, one) for one in RECORDS], 5)
        side.put([SideObject(ObjectKind.SOURCE, SOURCE)], 6)
        side.index([(at, parse_record(one)) for at, one in enumerate(RECORDS)])
    with open_log(data_dir) as log:
        log.append_many([record_leaf(one, "1") for one in RECORDS])
        log.wait_published(9, 60)
    with closing(SeenStore.below(data_dir)) as seen:
        digest = content_digest(b"a")
        note = (data_dir / "audit/log/checkpoint").read_text()
        seen.put(SeenRow(result_commitment("result"), digest, 1, digest, note))
    return data_dir


def execute(path: Path, statement: str, *values: object) -> None:
    with closing(sqlite3.connect(path)) as connection, connection:
        connection.execute(statement, values)


def found(data_dir: Path, key: LogKey) -> list[Fault]:
    return list(fsck_log(data_dir, key.policy).findings)


def drop_record(data_dir: Path, *numbers: int) -> None:
    for number in numbers:
        digest = ObjectKind.RECORD.digest(RECORDS[number])
        statement = "DELETE FROM object WHERE digest = ?"
        execute(data_dir / SIDE, statement, bytes.fromhex(digest))


def test_sound_stores_have_no_findings(recorded: Path, key: LogKey) -> None:
    assert found(recorded, key) == []


def test_changed_record_names_its_leaf(recorded: Path, key: LogKey) -> None:
    digest = ObjectKind.RECORD.digest(RECORDS[3])
    statement = "UPDATE object SET data = x'7b7d' WHERE digest = ?"
    execute(recorded / SIDE, statement, bytes.fromhex(digest))
    assert [(one.code, one.file, one.place) for one in found(recorded, key)] == [
        ("STO-L141", SIDE, "leaf 3"),
    ]


def test_changed_source_is_named(recorded: Path, key: LogKey) -> None:
    execute(recorded / SIDE, "UPDATE object SET data = x'00' WHERE kind = 2")
    (one,) = found(recorded, key)
    assert one.place == f"source {content_digest(SOURCE)}"


def test_source_deleted_by_retention_is_no_finding(recorded: Path, key: LogKey) -> None:
    with closing(SideStore.open(recorded)) as side:
        assert side.delete([content_digest(SOURCE)], 9) == 1
    assert found(recorded, key) == []


def test_missing_record_in_the_middle_is_a_fault(recorded: Path, key: LogKey) -> None:
    drop_record(recorded, 4)
    (one,) = found(recorded, key)
    assert (one.code, one.severity, one.place) == ("STO-L141", "fault", "leaf 4")


def test_newest_leaves_may_not_be_in_the_index_yet(recorded: Path, key: LogKey) -> None:
    execute(recorded / SIDE, "DELETE FROM mention WHERE place >= 8")
    (one,) = found(recorded, key)
    assert (one.severity, one.place) == ("notice", "leaves 8 to 9")


def test_leaf_missing_in_the_index_is_a_fault(recorded: Path, key: LogKey) -> None:
    execute(recorded / SIDE, "DELETE FROM mention WHERE place = 5")
    (one,) = found(recorded, key)
    assert (one.code, one.severity, one.place) == ("STO-L141", "fault", "leaf 5")


def test_admissions_need_no_record(
    recorded: Path, key: LogKey, open_log: Opener
) -> None:
    leaf = render_leaf(Leaf(LeafKind.ADMISSION, content_digest(b"s"), "1", 5))
    with open_log(recorded) as log:
        log.wait_published(log.append(leaf), 60)
    assert found(recorded, key) == []


def test_changed_row_of_seen_checkpoints_is_named(recorded: Path, key: LogKey) -> None:
    execute(recorded / SEEN, "UPDATE seen SET body = x'7b7d'")
    (one,) = found(recorded, key)
    assert (one.code, one.file, one.place) == ("STO-L141", SEEN, "row 0")
