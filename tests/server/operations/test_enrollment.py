from __future__ import annotations

from pathlib import Path

import msgspec
import pytest

from stoilo.core.errors import UsageError
from stoilo.core.signatures import PrivateKey
from stoilo.executor.verifier.targets import ReviewerFile, read_target
from stoilo.server.admission import tokens
from stoilo.server.data_directory import ConnectionFile
from stoilo.server.db.store import Store
from stoilo.server.operations.access import enroll, reviewers_of, withdraw
from tests.support.gate import INSTALLED, NOW
from tests.support.release import ReleasedProject

KEY = PrivateKey.generate().public.raw.hex()


@pytest.fixture
def data(tmp_path: Path) -> Path:
    """The data directory of a released project that has run before."""
    folder = tmp_path / "data"
    ReleasedProject(folder / "keys", "project.example/log", INSTALLED).publish(NOW)
    Store.open(f"sqlite:///{folder / 'server.sqlite'}").close()
    page = ConnectionFile("127.0.0.1:1", "http://x/", None, "token", "ca")
    (folder / "connection.json").write_bytes(msgspec.json.encode(page))
    return folder


def test_reviewer_of_a_released_project_is_proposed_and_not_published(
    data: Path, tmp_path: Path
) -> None:
    place = tmp_path / "keys.json"
    connection = enroll(data, "ann", KEY, (), {}, place)
    (named,) = read_target(place.read_bytes(), ReviewerFile, "keys.json").keys
    assert (named.key, named.name, len(named.accounts)) == (KEY, "ann", 1)
    assert reviewers_of(data) == ()
    store = Store.open(f"sqlite:///{data / 'server.sqlite'}")
    with store.read() as rows:
        owner = tokens.find_owner(rows, connection.token, NOW)
    store.close()
    assert owner.role == tokens.Role.REVIEWER


def test_without_a_proposal_a_released_project_refuses_and_makes_no_account(
    data: Path,
) -> None:
    for _ in range(2):
        with pytest.raises(UsageError, match="STO-K091"):
            enroll(data, "ann", KEY, (), {})
    assert not (data / "keys" / "offline").exists()


def test_unknown_reviewer_is_not_withdrawn(data: Path, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="STO-K054"):
        withdraw(data, KEY, tmp_path / "keys.json")
