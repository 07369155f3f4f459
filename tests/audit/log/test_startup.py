"""Whatever part of a log is changed, lost or older, it refuses to start and says which."""

import shutil
import sqlite3
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import pytest

from stoilo.audit.log.sequencer import Sequencer
from stoilo.audit.log.store import DiskStore
from stoilo.core.errors import StoiloError, TrustError
from tests.support.faulty_log import LogKey

Opener = Callable[..., Sequencer]


def execute(path: Path, statement: str, *values: object) -> None:
    with closing(sqlite3.connect(path)) as connection, connection:
        connection.execute(statement, values)


def refused(open_log: Opener, code: str) -> None:
    """The log does not open, says why, and still says so when asked again."""
    for _ in range(2):
        with pytest.raises(TrustError, match=code):
            open_log()


def flip(path: Path, place: int = 40) -> None:
    data = bytearray(path.read_bytes())
    data[place % len(data)] ^= 1
    path.write_bytes(data)


def test_sound_log_opens_again(open_log: Opener, filled: Path) -> None:
    assert filled.exists()
    log = open_log()
    assert (log.size, log.published_size) == (600, 600)


def test_lost_log_database_is_refused(open_log: Opener, filled: Path) -> None:
    (filled / "audit/log.sqlite").unlink()
    refused(open_log, "STO-L041")


def test_lost_head_database_is_refused(open_log: Opener, filled: Path) -> None:
    shutil.rmtree(filled / "audit-head")
    refused(open_log, "STO-L041")


def test_loss_of_both_databases_is_refused(open_log: Opener, filled: Path) -> None:
    (filled / "audit/log.sqlite").unlink()
    shutil.rmtree(filled / "audit-head")
    refused(open_log, "STO-L041")


def test_loss_of_the_whole_audit_directory_is_refused(
    open_log: Opener, filled: Path
) -> None:
    shutil.rmtree(filled / "audit")
    refused(open_log, "STO-L032")


def test_restored_old_log_database_is_refused(
    open_log: Opener, filled: Path, tmp_path: Path
) -> None:
    shutil.copy(filled / "audit/log.sqlite", tmp_path / "yesterday")
    with open_log() as log:
        log.append(b"today")
    shutil.copy(tmp_path / "yesterday", filled / "audit/log.sqlite")
    refused(open_log, "STO-L041")


def test_restored_old_databases_are_refused(
    open_log: Opener, filled: Path, tmp_path: Path
) -> None:
    shutil.copytree(filled, tmp_path / "yesterday")
    with open_log() as log:
        log.append(b"today")
    for name in ("audit/log.sqlite", "audit-head/head.sqlite"):
        shutil.copy(tmp_path / "yesterday" / name, filled / name)
    refused(open_log, "STO-L041")


def test_restored_old_publication_is_refused(
    open_log: Opener, filled: Path, tmp_path: Path
) -> None:
    shutil.copytree(filled / "audit/log", tmp_path / "yesterday")
    with open_log() as log:
        log.append(b"today")
    shutil.rmtree(filled / "audit/log")
    shutil.copytree(tmp_path / "yesterday", filled / "audit/log")
    refused(open_log, "STO-L041")


# What is put back from yesterday, the code, and what the message must name.
BACKUPS = [
    (["audit/log.sqlite"], "STO-L041", "audit/log.sqlite"),
    (["audit-head/head.sqlite"], "STO-L041", "audit-head/head.sqlite"),
    (["audit/log.sqlite", "audit-head/head.sqlite"], "STO-L041", "head.sqlite"),
    (["audit"], "STO-L041", "audit/log/checkpoint"),
    (["audit/log"], "STO-L041", "checkpoint"),
    (["audit/log/checkpoint"], "STO-L041", "checkpoint"),
    (["audit/log/tile"], "STO-L032", "tile/"),
]


@pytest.mark.parametrize(("parts", "code", "named"), BACKUPS)
def test_restored_backup_of_each_part_is_refused_by_name(
    open_log: Opener,
    filled: Path,
    tmp_path: Path,
    parts: list[str],
    code: str,
    named: str,
) -> None:
    shutil.copytree(filled, tmp_path / "yesterday")
    with open_log() as log:
        log.append_many([b"today %d" % number for number in range(300)])
    for part in parts:
        put_back(tmp_path / "yesterday" / part, filled / part)
    refused(open_log, f"{named}.*{code}")


def put_back(backup: Path, target: Path) -> None:
    if backup.is_dir():
        shutil.rmtree(target)
        shutil.copytree(backup, target)
    else:
        shutil.copy(backup, target)


@pytest.mark.parametrize("parts", [["audit/log", "audit-head"], []])
def test_newest_log_database_alone_suffices_to_go_on(
    open_log: Opener, filled: Path, tmp_path: Path, parts: list[str]
) -> None:
    """What is put back then looks like a crash before publishing, and nothing forks."""
    shutil.copytree(filled, tmp_path / "yesterday")
    with open_log() as log:
        log.append(b"today")
    for part in parts:
        put_back(tmp_path / "yesterday" / part, filled / part)
    log = open_log()
    log.wait_published(600, 60)
    assert log.leaf(600) == b"today"


def test_whole_backup_of_one_moment_goes_on(
    open_log: Opener, filled: Path, tmp_path: Path
) -> None:
    """The control, and the limit: only the signer and witnesses know better."""
    shutil.copytree(filled, tmp_path / "yesterday")
    with open_log() as log:
        log.append(b"today")
    put_back(tmp_path / "yesterday", filled)
    assert open_log().size == 600


@pytest.mark.parametrize("name", ["audit/log.sqlite", "audit-head/head.sqlite"])
def test_database_with_a_torn_page_is_refused_in_our_words_or_unharmed(
    open_log: Opener, filled: Path, name: str
) -> None:
    whole = (filled / name).read_bytes()
    refusals = 0
    for start in range(0, len(whole), 4096 if len(whole) < 50_000 else 12_288):
        torn = whole[:start] + bytes(2048) + whole[start + 2048 :]
        (filled / name).write_bytes(torn)
        try:
            with open_log() as log:
                assert log.leaf(599) == b"leaf 599"
        except StoiloError:
            refusals += 1
    assert refusals > 1


def test_deleted_checkpoint_is_refused(open_log: Opener, filled: Path) -> None:
    (filled / "audit/log/checkpoint").unlink()
    refused(open_log, "STO-L032")


def test_old_databases_with_the_checkpoint_deleted_are_refused(
    open_log: Opener, filled: Path, tmp_path: Path
) -> None:
    shutil.copytree(filled, tmp_path / "yesterday")
    with open_log() as log:
        log.append(b"today")
    for name in ("audit/log.sqlite", "audit-head/head.sqlite", "audit/log/checkpoint"):
        shutil.copy(tmp_path / "yesterday" / name, filled / name)
    refused(open_log, "STO-L044")


def test_changed_leaf_in_the_database_is_refused(
    open_log: Opener, filled: Path
) -> None:
    execute(filled / "audit/log.sqlite", "UPDATE leaves SET leaf=x'00' WHERE idx=300")
    refused(open_log, "STO-L049")


def test_removed_leaf_is_refused(open_log: Opener, filled: Path) -> None:
    execute(filled / "audit/log.sqlite", "DELETE FROM leaves WHERE idx = 599")
    refused(open_log, "STO-L049")


def test_changed_head_is_refused(open_log: Opener, filled: Path) -> None:
    execute(filled / "audit-head/head.sqlite", "UPDATE head SET root = zeroblob(32)")
    refused(open_log, "STO-L044")


def test_smaller_head_is_refused(open_log: Opener, filled: Path) -> None:
    execute(filled / "audit-head/head.sqlite", "UPDATE head SET size = 599")
    refused(open_log, "STO-L04[14]")


def test_changed_frontier_is_refused(open_log: Opener, filled: Path) -> None:
    statement = "UPDATE state SET frontier = zeroblob(length(frontier))"
    execute(filled / "audit/log.sqlite", statement)
    refused(open_log, "STO-L049")


def test_fork_signed_by_the_true_key_is_refused(
    open_log: Opener, filled: Path, tmp_path: Path
) -> None:
    with open_log(tmp_path / "fork") as fork:
        fork.append_many([b"fork %d" % number for number in range(600)])
    shutil.copy(tmp_path / "fork/audit/log/checkpoint", filled / "audit/log/checkpoint")
    refused(open_log, "STO-L044")


@pytest.mark.parametrize(
    "name",
    [
        "tile/entries/000",
        "tile/entries/002.p/88",
        "tile/0/001",
        "tile/0/002.p/88",
        "tile/1/000.p/2",
    ],
)
def test_flipped_bit_in_a_tile_is_refused(
    open_log: Opener, filled: Path, name: str
) -> None:
    flip(filled / "audit/log" / name)
    refused(open_log, "STO-L032")


def test_missing_tile_is_refused(open_log: Opener, filled: Path) -> None:
    (filled / "audit/log/tile/0/001").unlink()
    refused(open_log, "STO-L032")


def test_tile_beyond_the_log_is_refused(open_log: Opener, filled: Path) -> None:
    shutil.copy(
        filled / "audit/log/tile/0/002.p/88", filled / "audit/log/tile/0/002.p/89"
    )
    refused(open_log, "STO-L044")


def test_flipped_bit_in_the_checkpoint_signature_is_refused(
    open_log: Opener, filled: Path
) -> None:
    flip(filled / "audit/log/checkpoint", place=-20)
    refused(open_log, "STO-L01")


def test_checkpoint_by_another_key_is_refused(open_log: Opener, filled: Path) -> None:
    assert filled.exists()
    other = LogKey("log.test/t", seed=b"\3" * 32)
    with pytest.raises(TrustError, match="STO-L011"):
        open_log(policy=other.policy)


def test_other_origin_is_refused(filled: Path, key: LogKey) -> None:
    with pytest.raises(TrustError, match="STO-L048"):
        Sequencer.open(filled, "other.test/t", key.sign)


@pytest.mark.parametrize("name", ["audit/log.sqlite", "audit-head/head.sqlite"])
def test_database_of_garbage_is_refused(
    open_log: Opener, filled: Path, name: str
) -> None:
    (filled / name).write_bytes(b"not a database" * 1000)
    refused(open_log, "STO-L049")


def test_refusal_signs_and_writes_nothing(filled: Path, key: LogKey) -> None:
    flip(filled / "audit/log/tile/0/001")
    before = {
        path: path.read_bytes()
        for path in (filled / "audit/log").rglob("*")
        if path.is_file()
    }
    signed: list[bytes] = []

    def sign(body: bytes) -> bytes:
        signed.append(body)
        return key.sign(body)

    with pytest.raises(TrustError):
        Sequencer.open(filled, "log.test/t", sign, policy=key.policy)
    assert not signed
    assert all(path.read_bytes() == data for path, data in before.items())


class ForgetfulStore(DiskStore):
    """The negative control: it acknowledges leaves that it never wrote."""

    def __init__(self, data_dir: Path) -> None:
        super().__init__(data_dir)
        self.commit = lambda leaves, labels, frontier: None  # noqa: ARG005


def test_acknowledging_without_writing_is_caught(
    open_log: Opener, tmp_path: Path
) -> None:
    with open_log(store=ForgetfulStore(tmp_path / "data")) as log:
        log.append(b"lost")
    refused(open_log, "STO-L041")
