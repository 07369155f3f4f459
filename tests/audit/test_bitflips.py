"""One flipped bit in any file of a log is found and located by `verify` and `fsck`.

Databases have bytes that mean nothing (unused parts of a page, counters of SQLite's
own). A flip there is told apart by reading everything back: only then it may go unseen.
"""

from __future__ import annotations

import random
import shutil
import sqlite3
import tempfile
import time
import zlib
from collections.abc import Iterator
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import pytest

from stoilo.audit.format.facts import OperatorAct, OperatorRecord
from stoilo.audit.format.merkle import Checkpoint, render_checkpoint
from stoilo.audit.format.policy import LogPolicy
from stoilo.audit.format.records import parse_record, record_leaf, render_record
from stoilo.audit.log.batching import SequencerSettings
from stoilo.audit.log.fsck import LogReport, fsck_log
from stoilo.audit.log.fsck_parts import Fault, Severity
from stoilo.audit.log.seen import SeenRow, SeenStore, result_commitment
from stoilo.audit.log.sequencer import Sequencer
from stoilo.audit.log.side import ObjectKind, SideObject, SideStore
from stoilo.audit.read.reader import verify_log
from stoilo.core.digests import content_digest
from stoilo.core.errors import StoiloError, TrustError
from tests.support.faulty_log import LogKey

LEAVES = 600
KEY = LogKey("log.test/t", witness_time=1_700_000_000)
(_WITNESS,) = KEY.policy.witnesses
# Nothing needs this witness: damage to its line must be found all the same.
POLICY = LogPolicy(
    KEY.policy.logs, (replace(_WITNESS, url="https://witness.test/w/"),), (), "none"
)
# Tables of every database, and what of them a flip may change unseen: nothing is said
# about when an object arrived.
TABLES = ("leaves", "places", "labels", "state", "head", "mention", "note", "seen")
OBJECTS = "SELECT kind, digest, data, deleted_at IS NULL FROM object"


def record_of(number: int) -> bytes:
    return render_record(
        OperatorRecord(
            origin=KEY.origin,
            time=number,
            act=OperatorAct.SERVER_STARTED,
            subject=content_digest(b"%d" % number),
        )
    )


@pytest.fixture(scope="module")
def log_dir(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a data directory with every file that a log can have."""
    data_dir = tmp_path_factory.mktemp("flips") / "data"
    records = [record_of(number) for number in range(LEAVES)]
    leaves = [record_leaf(record, "1") for record in records]
    with closing(SideStore.open(data_dir)) as side:
        side.put([SideObject(ObjectKind.RECORD, record) for record in records], 5)
        side.put([SideObject(ObjectKind.SOURCE, b"def f():\n    return 1\n" * 50)], 6)
        side.index([(at, parse_record(one)) for at, one in enumerate(records)])
    with Sequencer.open(data_dir, KEY.origin, KEY.sign, policy=POLICY) as log:
        for start in range(0, LEAVES, 150):
            part = range(start, start + 150)
            log.append_many(leaves[start : start + 150], [f"task-{at}" for at in part])
            log.wait_published(part[-1], 60)
        note = log.checkpoint().decode()
    keep_seen(data_dir, note)
    return data_dir


def keep_seen(data_dir: Path, note: str) -> None:
    older = KEY.sign(render_checkpoint(Checkpoint(KEY.origin, 1, b"\1" * 32)))
    with closing(SeenStore.below(data_dir)) as store:
        for number in range(20):
            text = note if number % 2 else older.decode()
            digest = content_digest(b"%d" % number)
            commitment = result_commitment(f"result_{number}")
            store.put(SeenRow(commitment, digest, 1, digest, text))


def files_of(data_dir: Path) -> list[Path]:
    found = (path for path in data_dir.rglob("*") if path.is_file())
    return sorted(path for path in found if path.stat().st_size)


def contents(path: Path) -> object:
    """Return all that a database says, or why it says nothing."""
    try:
        with closing(sqlite3.connect(f"file:{path}?immutable=1", uri=True)) as opened:
            opened.text_factory = bytes
            rows = opened.execute("SELECT name, sql FROM sqlite_master").fetchall()
            names = {row[0].decode(errors="replace") for row in rows}
            for table in [one for one in TABLES if one in names]:
                query = f"SELECT * FROM {table}"  # noqa: S608 - our own words
                rows += opened.execute(query).fetchall()
            return rows + (
                opened.execute(OBJECTS).fetchall() if "object" in names else []
            )
    except sqlite3.Error as error:
        return repr(error)


def faults_of(report: LogReport) -> list[Fault]:
    return [one for one in report.findings if one.severity is Severity.FAULT]


def flips(path: Path, count: int) -> Iterator[tuple[int, int]]:
    """Yield places and bits, the same in every run; for a database also among its rows."""
    chance = random.Random(zlib.crc32(path.name.encode()))
    data = path.read_bytes()
    marks = [at for at, byte in enumerate(data) if byte]
    for turn in range(count):
        place = chance.choice(marks) if turn % 2 else chance.randrange(len(data))
        yield place, chance.randrange(8)


def refusal_of(data_dir: Path) -> str:
    """Return what `verify` says against a log, empty when it says nothing."""
    try:
        verify_log(data_dir, POLICY)
    except TrustError as error:
        return str(error)
    return ""


def check_flips(data_dir: Path, path: Path, count: int) -> int:
    """Flip bits of a file; return how many flips meant something."""
    name, data, meant = str(path.relative_to(data_dir)), path.read_bytes(), 0
    before = contents(path) if path.suffix == ".sqlite" else None
    try:
        for place, bit in flips(path, count):
            changed = bytearray(data)
            changed[place] ^= 1 << bit
            path.write_bytes(changed)
            where = f"{name} byte {place} bit {bit}"
            found = faults_of(fsck_log(data_dir, POLICY))
            if not found and before is not None:
                assert contents(path) == before, where
                verify_log(data_dir, POLICY)
                continue
            meant += 1
            assert name in {one.file for one in found}, (where, found)
            assert all(one.remedy for one in found)
            assert name in refusal_of(data_dir), where
    finally:
        path.write_bytes(data)
    return meant


def sign_one_more(data_dir: Path) -> set[bytes]:
    """Open a log, append one leaf, and return every body that was signed meanwhile."""
    signed: set[bytes] = set()

    def sign(body: bytes) -> bytes:
        signed.add(body)
        return KEY.sign(body)

    settings = SequencerSettings(retry_s=0.02, close_s=1)
    try:
        with Sequencer.open(
            data_dir, KEY.origin, sign, policy=POLICY, settings=settings
        ) as log:
            log.wait_published(log.append(b"one more", "one-more"), 1)
    except StoiloError:
        pass
    return signed


@pytest.mark.parametrize("name", ["audit/log.sqlite", "audit-head/head.sqlite"])
def test_flipped_database_is_refused_with_a_code_or_signs_the_same(
    log_dir: Path, tmp_path: Path, name: str
) -> None:
    """Neither a traceback, nor a signature under another history."""
    sound = shutil.copytree(log_dir, tmp_path / "sound")
    expected = sign_one_more(sound)
    assert len(expected) == 1
    for turn, (place, bit) in enumerate(flips(log_dir / name, 12)):
        copy = shutil.copytree(log_dir, tmp_path / f"copy-{turn}")
        data = bytearray((copy / name).read_bytes())
        data[place] ^= 1 << bit
        (copy / name).write_bytes(data)
        assert sign_one_more(copy) <= expected, (place, bit)
        shutil.rmtree(copy)


@pytest.fixture
def unclean_dir(log_dir: Path, tmp_path: Path) -> Path:
    """Return a data directory as a killed writer leaves it, with write-ahead logs."""
    shutil.copytree(log_dir, tmp_path / "open")
    with Sequencer.open(tmp_path / "open", KEY.origin, KEY.sign, policy=POLICY) as log:
        for number in range(5):
            leaf = record_leaf(record_of(number), "2")
            log.wait_published(log.append(leaf, f"again-{number}"), 60)
        poll = log.published_size
        assert poll == LEAVES + 5
        time.sleep(0.05)  # the publisher remembers the last checkpoint
        shutil.copytree(tmp_path / "open", tmp_path / "unclean")
    return tmp_path / "unclean"


def everything(data_dir: Path) -> dict[str, object]:
    """Return all that the databases say after recovery, of a copy."""
    with tempfile.TemporaryDirectory() as folder:
        copy = shutil.copytree(data_dir, Path(folder) / "copy")
        found: dict[str, object] = {}
        for path in sorted(copy.rglob("*.sqlite")):
            with closing(sqlite3.connect(path)) as opened:
                opened.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchall()
            found[path.name] = contents(path)
        return found


def check_unclean_flips(data_dir: Path, path: Path, count: int) -> None:
    """A flip in a write-ahead log is found, or everything says the same after it.

    In the very last transaction it looks like a torn write, and is named as that.
    """
    name = str(path.relative_to(data_dir))
    before, data = everything(data_dir), path.read_bytes()
    try:
        for place, bit in flips(path, count):
            changed = bytearray(data)
            changed[place] ^= 1 << bit
            path.write_bytes(changed)
            where = f"{path.name} byte {place} bit {bit}"
            report = fsck_log(data_dir, POLICY)
            if report.is_sound and name not in {one.file for one in report.findings}:
                assert everything(data_dir) == before, where
    finally:
        path.write_bytes(data)


def test_flipped_bit_in_a_write_ahead_log_is_found_or_says_the_same(
    unclean_dir: Path,
) -> None:
    logs = [one for one in files_of(unclean_dir) if one.name.endswith(("-wal", "-shm"))]
    assert len(logs) >= 4
    assert fsck_log(unclean_dir, POLICY).is_sound
    for path in logs:
        check_unclean_flips(unclean_dir, path, 2)


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_flipped_bits_all_over_write_ahead_logs_are_found_or_say_the_same(
    unclean_dir: Path,
) -> None:
    for path in files_of(unclean_dir):
        if path.name.endswith(("-wal", "-shm")):
            check_unclean_flips(unclean_dir, path, 15)


def test_unflipped_log_is_sound(log_dir: Path) -> None:
    """The control: what the flips are found in has no fault of its own."""
    report = fsck_log(log_dir, POLICY)
    assert (report.findings, report.is_proven) == ((), True)
    assert verify_log(log_dir, POLICY).size == LEAVES


def test_log_directory_has_every_kind_of_file(log_dir: Path) -> None:
    names = {str(path.relative_to(log_dir)) for path in files_of(log_dir)}
    assert {
        "audit-head/head.sqlite",
        "audit/log.sqlite",
        "audit/side.sqlite",
        "audit/seen.sqlite",
        "audit/log/checkpoint",
        "audit/log/policy.txt",
        "audit/log/tile/0/001",
        "audit/log/tile/0/002.p/88",
        "audit/log/tile/1/000.p/2",
        "audit/log/tile/entries/001",
    } <= names


def test_flipped_bit_in_each_file_is_found_and_located(log_dir: Path) -> None:
    meant = {
        path.name: check_flips(log_dir, path, 3 if path.suffix == ".sqlite" else 1)
        for path in files_of(log_dir)
    }
    assert all(meant.values()), meant


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_flipped_bits_all_over_each_file_are_found_and_located(log_dir: Path) -> None:
    for path in files_of(log_dir):
        count = 30 if path.suffix == ".sqlite" else 5
        assert check_flips(log_dir, path, count) >= count / 5
