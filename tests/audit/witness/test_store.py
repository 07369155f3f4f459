from pathlib import Path

import pytest

from stoilo.audit.format.merkle import Checkpoint
from stoilo.audit.witness.protocol import hash_origin
from stoilo.audit.witness.service import Cosigned, WitnessStore
from stoilo.core.errors import StoiloError, TrustError

ORIGIN = "log.test/t"


def entry(size: int, root: bytes = bytes(32)) -> Cosigned:
    return Cosigned(Checkpoint(ORIGIN, size, root), 1, b"note")


def test_what_was_stored_is_there_after_reopening(tmp_path: Path) -> None:
    store = WitnessStore(tmp_path / "s", "vkey")
    assert store.advance(ORIGIN, lambda _: entry(5)) == entry(5)
    store.close()
    again = WitnessStore(tmp_path / "s", "vkey")
    assert again.latest(hash_origin(ORIGIN)) == entry(5)
    again.close()


def test_decision_sees_the_last_one_and_may_leave_it(tmp_path: Path) -> None:
    store = WitnessStore(tmp_path / "s", "vkey")
    seen: list[Cosigned | None] = []
    store.advance(ORIGIN, lambda last: (seen.append(last), entry(5))[1])
    store.advance(ORIGIN, seen.append)
    assert seen == [None, entry(5)]
    assert store.latest(hash_origin(ORIGIN)) == entry(5)
    store.close()


def test_failed_decision_changes_nothing_and_the_next_one_works(
    tmp_path: Path,
) -> None:
    store = WitnessStore(tmp_path / "s", "vkey")

    def fail(_: Cosigned | None) -> Cosigned:
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        store.advance(ORIGIN, fail)
    assert store.latest(hash_origin(ORIGIN)) is None
    assert store.advance(ORIGIN, lambda _: entry(1)) == entry(1)
    store.close()


def test_memory_of_another_key_is_refused(tmp_path: Path) -> None:
    WitnessStore(tmp_path / "s", "one").close()
    with pytest.raises(TrustError, match="STO-L106"):
        WitnessStore(tmp_path / "s", "another")


def test_damaged_memory_is_refused(tmp_path: Path) -> None:
    (tmp_path / "s").write_bytes(b"this is no database" * 100)
    with pytest.raises(StoiloError, match="STO-L106"):
        WitnessStore(tmp_path / "s", "vkey")


def test_every_commit_is_flushed(tmp_path: Path) -> None:
    store = WitnessStore(tmp_path / "s", "vkey")
    (level,) = store._connection.execute("PRAGMA synchronous").fetchone()
    assert level == 2  # FULL
    store.close()


def test_memory_that_is_gone_is_not_begun_anew_under_the_same_key(
    tmp_path: Path,
) -> None:
    WitnessStore(tmp_path / "w.sqlite", "key").close()
    for file in tmp_path.glob("w.sqlite*"):
        file.unlink()
    with pytest.raises(TrustError, match="STO-L106"):
        WitnessStore(tmp_path / "w.sqlite", "key")
    assert not (tmp_path / "w.sqlite").exists()
