from pathlib import Path

import pytest

from stoilo.audit.witness.protocol import hash_origin, render_add_checkpoint
from stoilo.audit.witness.service import STORE_FILE, WitnessStore
from stoilo.core.errors import StoiloError, TrustError
from tests.support.local_witness import GrowingLog, LocalWitness

from .conftest import ORIGIN

NAME = hash_origin(ORIGIN)


@pytest.fixture
def witness(make_witness: object, log: GrowingLog) -> LocalWitness:
    """Return a witness that has cosigned 5 leaves."""
    one: LocalWitness = make_witness("w")  # type: ignore[operator]  # a fixture's function
    one.service.add_checkpoint(render_add_checkpoint(log.request(0, 5)))
    return one


def size_of(store: WitnessStore) -> int:
    found = store.find(NAME)
    return found.checkpoint.size if found else 0


def test_what_was_stored_is_there_after_reopening(
    witness: LocalWitness, tmp_path: Path
) -> None:
    witness.store.close()
    again = WitnessStore(tmp_path / "w" / STORE_FILE, witness.key.vkey)
    assert size_of(again) == 5
    again.close()


def test_failed_change_changes_nothing_and_the_next_one_works(
    witness: LocalWitness, log: GrowingLog
) -> None:
    def fail() -> None:
        with witness.store.change():
            witness.store.put(NAME, b"")
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        fail()
    assert size_of(witness.store) == 5
    witness.service.add_checkpoint(render_add_checkpoint(log.request(5, 6)))
    assert size_of(witness.store) == 6


def test_memory_of_another_key_is_refused(
    make_witness: object, witness: LocalWitness, tmp_path: Path
) -> None:
    other: LocalWitness = make_witness("v")  # type: ignore[operator]  # a fixture's function
    with pytest.raises(TrustError, match="STO-L106"):
        WitnessStore(tmp_path / "w" / STORE_FILE, other.key.vkey)
    assert size_of(witness.store) == 5


def test_damaged_memory_is_refused(witness: LocalWitness, tmp_path: Path) -> None:
    (tmp_path / "s").write_bytes(b"this is no database" * 100)
    with pytest.raises(StoiloError, match="STO-L106"):
        WitnessStore(tmp_path / "s", witness.key.vkey)


def test_every_commit_is_flushed(witness: LocalWitness) -> None:
    (level,) = witness.store._connection.execute("PRAGMA synchronous").fetchone()
    assert level == 2  # FULL


def test_memory_that_is_gone_is_not_begun_anew_under_the_same_key(
    witness: LocalWitness, tmp_path: Path
) -> None:
    witness.store.close()
    for file in (tmp_path / "w").glob(f"{STORE_FILE}*"):
        file.unlink()
    with pytest.raises(TrustError, match="STO-L106"):
        WitnessStore(tmp_path / "w" / STORE_FILE, witness.key.vkey)
    assert not (tmp_path / "w" / STORE_FILE).exists()
