from __future__ import annotations

import time
from pathlib import Path

import msgspec
import pytest

from stoilo.core.errors import DeniedError, UsageError
from stoilo.core.signatures import PrivateKey
from stoilo.executor.verifier.targets import ReviewerFile, read_target
from stoilo.server.admission import tokens
from stoilo.server.data_directory import ConnectionFile
from stoilo.server.db.store import Store
from stoilo.server.operations.access import (
    add_token,
    enroll,
    open_accounts,
    reviewers_of,
    withdraw,
)
from stoilo.signer.development.root import create_development_root
from tests.support.gate import INSTALLED, NOW
from tests.support.release import ReleasedProject

KEY, OTHER_KEY = (PrivateKey.generate().public.raw.hex() for _ in range(2))
ORIGIN = "project.example/log"


@pytest.fixture
def data(tmp_path: Path) -> Path:
    """The data directory of a released project that has run before."""
    folder = tmp_path / "data"
    ReleasedProject(folder / "keys", ORIGIN, INSTALLED).publish(NOW)
    return run_before(folder)


@pytest.fixture
def developed(tmp_path: Path) -> Path:
    """The data directory of a development root that has run before."""
    folder = tmp_path / "data"
    folder.mkdir(mode=0o700)
    now = int(time.time())
    create_development_root(folder / "keys", ORIGIN, now, installed=INSTALLED)
    return run_before(folder)


def run_before(folder: Path) -> Path:
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
        withdraw(data, KEY, {}, tmp_path / "keys.json")


def opens(data: Path, *connections: ConnectionFile) -> list[bool]:
    """Say of each connection whether its token is good."""
    found = []
    with open_accounts(data, {}) as store, store.read() as rows:
        for one in connections:
            try:
                tokens.find_owner(rows, one.token, int(time.time()))
            except DeniedError:
                found.append(False)
            else:
                found.append(True)
    return found


def test_withdrawn_reviewer_reads_nothing_more_and_keeps_his_other_tokens(
    developed: Path,
) -> None:
    reading, other = (
        enroll(developed, *who, (), {}) for who in (("ann", KEY), ("bob", OTHER_KEY))
    )
    with open_accounts(developed, {}) as store:
        research = add_token(store, developed, "ann", 3600, int(time.time()))
    assert opens(developed, reading, research, other) == [True, True, True]
    withdraw(developed, KEY, {})
    assert opens(developed, reading, research, other) == [False, True, True]
    assert [one.name for one in reviewers_of(developed)] == ["bob"]


def test_reviewer_with_another_key_goes_on_reading(developed: Path) -> None:
    reading = [enroll(developed, "ann", key, (), {}) for key in (KEY, OTHER_KEY)]
    withdraw(developed, KEY, {})
    assert opens(developed, *reading) == [True, True]
    withdraw(developed, OTHER_KEY, {})
    assert opens(developed, *reading) == [False, False]
