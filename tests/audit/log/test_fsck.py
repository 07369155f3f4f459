"""fsck finds every fault of a log, says where it is and what would help, changes nothing."""

import errno
import hashlib
import shutil
import sqlite3
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import pytest

from stoilo.audit.format.merkle import Checkpoint, render_checkpoint
from stoilo.audit.format.proof import MAX_LEAF_BYTES
from stoilo.audit.log.fsck import LogReport, fsck_log
from stoilo.audit.log.fsck_parts import MAX_FINDINGS, Fault, Severity
from stoilo.audit.log.sequencer import Sequencer
from stoilo.audit.log.store import HeadDatabase, TreeHead
from stoilo.audit.log.tile_directory import TileDirectory
from stoilo.core.codebook import load_codebook
from stoilo.core.errors import UnreachableError
from tests.support.faulty_log import LogKey

Opener = Callable[..., Sequencer]


def execute(path: Path, statement: str, *values: object) -> None:
    with closing(sqlite3.connect(path)) as connection, connection:
        connection.execute(statement, values)


def flip(path: Path, place: int, bit: int = 0) -> None:
    data = bytearray(path.read_bytes())
    data[place] ^= 1 << bit
    path.write_bytes(data)


def faults(data_dir: Path, key: LogKey) -> list[Fault]:
    report = fsck_log(data_dir, key.policy)
    return [one for one in report.findings if one.severity is Severity.FAULT]


def places(found: list[Fault]) -> list[tuple[str, str, str]]:
    return [(one.code, one.file, one.place) for one in found]


def digest_of(folder: Path) -> dict[Path, str]:
    return {
        path: hashlib.sha256(path.read_bytes()).hexdigest()
        for path in folder.rglob("*")
        if path.is_file()
    }


def test_sound_log_has_no_findings(filled: Path, key: LogKey) -> None:
    report = fsck_log(filled, key.policy)
    assert report == LogReport(
        origin="log.test/t",
        size=600,
        root=report.root,
        tiles_checked=8,
        own_policy=False,
        checkpoint_time=None,
        witnesses=(),
        unpublished=0,
        committed=600,
        is_proven=True,
    )


def test_nothing_is_changed(filled: Path, key: LogKey) -> None:
    flip(filled / "audit/log/tile/0/000", 40)
    before = digest_of(filled)
    assert faults(filled, key)
    assert digest_of(filled) == before


@pytest.mark.parametrize("size", [0, 1, 255, 256, 257, 511, 512, 513])
def test_log_of_any_size_is_sound(
    open_log: Opener, tmp_path: Path, key: LogKey, size: int
) -> None:
    with open_log() as log:
        if size:
            log.append_many([b"%d" % number for number in range(size)])
            log.wait_published(size - 1, 60)
    report = fsck_log(tmp_path / "data", key.policy)
    assert (report.findings, report.committed) == ((), size)


@pytest.mark.slow
@pytest.mark.parametrize("size", [65535, 65536, 65537])
def test_log_around_a_full_tile_of_tiles_is_sound_and_located(
    open_log: Opener, tmp_path: Path, key: LogKey, size: int
) -> None:
    with open_log() as log:
        log.append_many([b"%d" % number for number in range(size)])
        log.wait_published(size - 1, 60)
    assert fsck_log(tmp_path / "data", key.policy).findings == ()
    above = "audit/log/tile/1/000" + (".p/255" if size == 65535 else "")
    flip(tmp_path / "data" / above, 200 * 32)
    assert places(faults(tmp_path / "data", key)) == [
        ("STO-L032", above, "hash 200 (leaves 51200 to 51455)")
    ]


def test_entries_of_0_and_65535_bytes_are_sound_and_located(
    open_log: Opener, tmp_path: Path, key: LogKey
) -> None:
    with open_log() as log:
        log.append_many([b"", b"x" * MAX_LEAF_BYTES, b"last"])
        log.wait_published(2, 60)
    assert fsck_log(tmp_path / "data", key.policy).findings == ()
    name = "audit/log/tile/entries/000.p/3"
    flip(tmp_path / "data" / name, 2 + 2 + 65535)  # the length of the last
    assert places(faults(tmp_path / "data", key)) == [
        ("STO-L032", name, "entry 2 (leaf 2)")
    ]


def test_changed_leaf_in_the_database_is_located(filled: Path, key: LogKey) -> None:
    name = "audit/log.sqlite"
    execute(filled / name, "UPDATE leaves SET leaf = x'00' WHERE idx = 300")
    found = faults(filled, key)
    assert places(found) == [("STO-L049", name, "leaf 300")]
    assert "restore the newest backup of audit/log.sqlite" in found[0].remedy
    assert fsck_log(filled, key.policy).is_proven


def test_missing_leaf_in_the_database_is_located(filled: Path, key: LogKey) -> None:
    execute(filled / "audit/log.sqlite", "DELETE FROM leaves WHERE idx = 7")
    assert places(faults(filled, key)) == [("STO-L049", "audit/log.sqlite", "leaf 7")]


@pytest.mark.parametrize(
    ("name", "byte", "place"),
    [
        ("tile/0/001", 44 * 32 + 5, "hash 44 (leaf 300)"),
        ("tile/0/002.p/88", 0, "hash 0 (leaf 512)"),
        ("tile/1/000.p/2", 40, "hash 1 (leaves 256 to 511)"),
        ("tile/entries/000", 4, "entry 0 (leaf 0)"),
    ],
)
def test_flipped_tile_is_located(
    filled: Path, key: LogKey, name: str, byte: int, place: str
) -> None:
    flip(filled / "audit/log" / name, byte)
    assert places(faults(filled, key)) == [("STO-L032", f"audit/log/{name}", place)]
    assert fsck_log(filled, key.policy).is_proven


def test_flipped_length_in_a_bundle_is_located_where_it_is(
    filled: Path, key: LogKey
) -> None:
    """All entries after it are read wrongly, yet the place of the first is named."""
    flip(filled / "audit/log/tile/entries/000", 0, bit=1)
    assert faults(filled, key)[0].place == "entry 0 (leaf 0)"


def test_bare_log_directory_is_checked_without_databases(
    filled: Path, key: LogKey
) -> None:
    assert fsck_log(filled / "audit/log", key.policy).findings == ()
    flip(filled / "audit/log/tile/entries/001", 4)
    found = faults(filled / "audit/log", key)
    assert places(found) == [("STO-L032", "tile/entries/001", "entry 0 (leaf 256)")]
    flip(
        filled / "audit/log/tile/0/001", 32
    )  # two of two copies differ: the tile above
    found = faults(filled / "audit/log", key)
    assert {one.file for one in found} == {"tile/entries/001", "tile/0/001"}


def test_several_faults_are_all_listed(filled: Path, key: LogKey) -> None:
    flip(filled / "audit/log/tile/0/000", 32)
    flip(filled / "audit/log/tile/entries/001", 4)
    (filled / "audit/log/tile/1/000.p/2").unlink()
    execute(filled / "audit/log.sqlite", "UPDATE leaves SET leaf=x'00' WHERE idx=599")
    assert places(faults(filled, key)) == [
        ("STO-L032", "audit/log/tile/0/000", "hash 1 (leaf 1)"),
        ("STO-L032", "audit/log/tile/entries/001", "entry 0 (leaf 256)"),
        ("STO-L049", "audit/log.sqlite", "leaf 599"),
        ("STO-L032", "audit/log/tile/1/000.p/2", ""),
    ]


def test_all_copies_of_a_leaf_changed_alike_cannot_hide(
    filled: Path, key: LogKey
) -> None:
    """Whoever rewrites database, bundle and tile still has the signed root against him."""
    execute(filled / "audit/log.sqlite", "UPDATE leaves SET leaf=x'41' WHERE idx=0")
    log = TileDirectory(filled / "audit/log")
    bundle = log.read("tile/entries/000", 10**6) or b""
    (filled / "audit/log/tile/entries/000").write_bytes(b"\0\1A" + bundle[8:])
    tile = log.read("tile/0/000", 10**6) or b""
    changed = hashlib.sha256(b"\0A").digest() + tile[32:]
    (filled / "audit/log/tile/0/000").write_bytes(changed)
    report = fsck_log(filled, key.policy)
    assert not report.is_proven
    assert ("STO-L032", "audit/log/checkpoint", "") in places(list(report.findings))


def test_older_log_database_is_named(
    open_log: Opener, filled: Path, key: LogKey, tmp_path: Path
) -> None:
    shutil.copy(filled / "audit/log.sqlite", tmp_path / "yesterday")
    with open_log() as log:
        log.wait_published(log.append(b"today"), 60)
    shutil.copy(tmp_path / "yesterday", filled / "audit/log.sqlite")
    found = faults(filled, key)
    assert found[0].code == "STO-L041"
    assert "600 leaves, but 601 were acknowledged" in found[0].message


def test_older_publication_is_named(
    open_log: Opener, filled: Path, key: LogKey, tmp_path: Path
) -> None:
    shutil.copy(filled / "audit/log/checkpoint", tmp_path / "yesterday")
    with open_log() as log:
        log.wait_published(log.append(b"today"), 60)
    shutil.copy(tmp_path / "yesterday", filled / "audit/log/checkpoint")
    assert places(faults(filled, key)) == [("STO-L041", "audit/log/checkpoint", "")]


@pytest.mark.parametrize(
    ("lost", "code"),
    [
        ("audit/log.sqlite", "STO-L041"),
        ("audit-head/head.sqlite", "STO-L041"),
        ("audit/log/checkpoint", "STO-L032"),
        ("audit/log/tile/0/000", "STO-L032"),
    ],
)
def test_lost_file_is_named(filled: Path, key: LogKey, lost: str, code: str) -> None:
    (filled / lost).unlink()
    assert (code, lost) in {(one.code, one.file) for one in faults(filled, key)}


def test_wrong_head_is_told_from_a_wrong_log(filled: Path, key: LogKey) -> None:
    name = "audit-head/head.sqlite"
    execute(filled / name, "UPDATE head SET root = ?", b"\1" * 32)
    assert places(faults(filled, key)) == [("STO-L044", name, "table head, row 1")]


def test_changed_unpublished_leaf_is_noticed(
    open_log: Opener, filled: Path, key: LogKey
) -> None:
    """It lies in one copy only: both databases remember another root."""

    def refuse(_: bytes) -> bytes:
        raise ConnectionError

    with open_log(sign=refuse) as log:
        log.append_many([b"not published", b"nor this"])
    for path in (filled / "audit/log/tile").rglob("*.p/*"):
        if path.name == "90":
            path.unlink()
    execute(filled / "audit/log.sqlite", "UPDATE leaves SET leaf=x'00' WHERE idx=601")
    found = faults(filled, key)
    assert {one.file for one in found} == {"audit/log.sqlite", "audit-head/head.sqlite"}


def test_unpublished_leaves_of_a_stopped_signer_are_no_fault(
    open_log: Opener, filled: Path, key: LogKey
) -> None:
    def refuse(_: bytes) -> bytes:
        raise ConnectionError

    with open_log(sign=refuse) as log:
        log.append(b"not published")
    report = fsck_log(filled, key.policy)
    assert (report.faults, report.size, report.unpublished) == (0, 600, 1)


def test_tile_beyond_the_log_is_a_fault(filled: Path, key: LogKey) -> None:
    (filled / "audit/log/tile/0/009").write_bytes(bytes(8192))
    assert places(faults(filled, key)) == [("STO-L044", "audit/log/tile/0/009", "")]


@pytest.mark.parametrize("keep", [0, 1, 31, 32, 4096, 8191])
def test_torn_tile_is_located(filled: Path, key: LogKey, keep: int) -> None:
    """A disk that kept only a part of what was flushed."""
    path = filled / "audit/log/tile/0/000"
    path.write_bytes(path.read_bytes()[:keep])
    found = faults(filled, key)
    assert found[0].place == f"hash {keep // 32} (leaf {keep // 32})"
    assert {one.file for one in found} == {"audit/log/tile/0/000"}


@pytest.mark.parametrize("keep", [0, 1, 2, 700, 1500])
def test_torn_bundle_is_located(filled: Path, key: LogKey, keep: int) -> None:
    path = filled / "audit/log/tile/entries/000"
    path.write_bytes(path.read_bytes()[:keep])
    assert {one.file for one in faults(filled, key)} == {"audit/log/tile/entries/000"}


def test_zeroed_end_of_a_tile_is_located(filled: Path, key: LogKey) -> None:
    path = filled / "audit/log/tile/0/000"
    path.write_bytes(path.read_bytes()[:4096] + bytes(4096))
    assert faults(filled, key)[0].place == "hash 128 (leaf 128)"


def test_wrong_index_rows_are_located(filled: Path, key: LogKey) -> None:
    database = filled / "audit/log.sqlite"
    execute(database, "INSERT INTO labels VALUES ('task', 600, NULL)")
    execute(database, "INSERT INTO places VALUES (?, 3)", b"\2" * 32)
    assert {one[::2] for one in places(faults(filled, key))} == {
        ("STO-L049", "table labels, 'task'"),
        ("STO-L049", f"table places, hash {'02' * 32}"),
    }


def test_other_key_is_not_believed(filled: Path) -> None:
    other = LogKey("log.test/t", b"\4" * 32)
    report = fsck_log(filled, other.policy)
    assert not report.is_sound
    assert not report.is_proven


def test_checkpoint_of_another_history_is_found(filled: Path, key: LogKey) -> None:
    fork = key.sign(render_checkpoint(Checkpoint("log.test/t", 600, b"\5" * 32)))
    (filled / "audit/log/checkpoint").write_bytes(fork)
    found = {(one.code, one.file) for one in faults(filled, key)}
    assert ("STO-L044", "audit/log/checkpoint") in found


def test_foreign_head_database_is_named(filled: Path, key: LogKey) -> None:
    shutil.rmtree(filled / "audit-head")
    head = HeadDatabase(filled / "audit-head/head.sqlite")
    head.create("other.test/log", TreeHead(600, b"\1" * 32))
    head.close()
    found = {(one.code, one.file) for one in faults(filled, key)}
    assert ("STO-L048", "audit-head/head.sqlite") in found


def test_unreadable_piece_is_a_fault_with_its_place(
    filled: Path, key: LogKey, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A bad sector: everything else is checked all the same."""
    read = TileDirectory.read

    def bad_sector(self: TileDirectory, name: str, limit: int) -> bytes | None:
        if name == "tile/0/001":
            raise OSError(errno.EIO, "Input/output error")
        return read(self, name, limit)

    monkeypatch.setattr(TileDirectory, "read", bad_sector)
    found = faults(filled, key)
    assert {(one.code, one.file) for one in found} == {
        ("STO-L032", "audit/log/tile/0/001")
    }


def test_missing_permission_is_not_a_fault_of_the_log(
    filled: Path, key: LogKey, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object) -> bytes:
        raise PermissionError(errno.EACCES, "Permission denied")

    monkeypatch.setattr(TileDirectory, "read", refuse)
    with pytest.raises(UnreachableError, match="STO-L002"):
        fsck_log(filled, key.policy)


def test_findings_are_bounded(filled: Path, key: LogKey) -> None:
    for number in range(MAX_FINDINGS + 5):
        beyond = filled / f"audit/log/tile/0/x{number // 1000 + 1:03}"
        beyond.mkdir(exist_ok=True)
        (beyond / f"{number % 1000:03}").touch()
    report = fsck_log(filled, key.policy)
    assert (len(report.findings), report.omitted) == (MAX_FINDINGS, 5)


def test_every_code_is_explained(filled: Path, key: LogKey) -> None:
    shutil.rmtree(filled / "audit/log/tile/0")
    execute(filled / "audit/log.sqlite", "DELETE FROM leaves WHERE idx > 300")
    codes = {one.code for one in faults(filled, key)}
    assert codes <= set(load_codebook())
