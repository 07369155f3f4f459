from __future__ import annotations

import contextlib

import pytest

from stoilo.core.boinc.messages import SchedulerRequest
from stoilo.core.errors import DeniedError, InternalError, UsageError
from stoilo.server.engines.embedded.accounts.accounts import Accounts, load_secret
from stoilo.server.engines.embedded.accounts.preferences import LEVELS
from stoilo.server.engines.embedded.accounts.roster import open_roster
from stoilo.server.engines.embedded.db.database import Database
from stoilo.server.engines.embedded.scheduling.authenticate import find_visitor

HASH, OTHER = "a" * 32, "b" * 32


def user_of(connection, key):
    return find_visitor(connection, SchedulerRequest(key, 0, 1, "c"))


@pytest.fixture
def accounts(tmp_path):
    roster = open_roster(tmp_path)
    yield roster.accounts
    roster.close()


def test_account_is_made_once_and_keys_can_be_shown_again(accounts, tmp_path):
    first = accounts.ensure("V@Example.org ", 1)
    with contextlib.closing(open_roster(tmp_path)) as roster:
        again = roster.accounts.ensure("v@example.org", 2)
    assert first == again
    assert first.key != first.weak_key
    assert accounts.ensure("w@example.org", 1).key != first.key


def test_level_is_pure_until_chosen(accounts):
    assert accounts.ensure("a@example.org", 1).max_level == "pure"
    assert (
        accounts.ensure("a@example.org", 1, max_level="numeric").max_level == "numeric"
    )
    assert accounts.ensure("a@example.org", 1).max_level == "numeric"


@pytest.mark.parametrize(
    "email", ["", "x", "@example.org", "a@", "a b@example.org", "a@ex\n.org", "a" * 300]
)
def test_unusable_address_is_refused(accounts, email):
    with pytest.raises(UsageError, match="STO-E015"):
        accounts.ensure(email, 1)


def test_unknown_level_is_refused(accounts):
    with pytest.raises(UsageError, match="STO-E015"):
        accounts.ensure("a@example.org", 1, max_level="root")


def test_password_opens_the_account_and_another_does_not(accounts):
    made = accounts.create("a@example.org", HASH, 1)
    assert accounts.find("A@example.org", HASH) == made
    for password in (OTHER, "", HASH * 100):
        with pytest.raises(DeniedError, match="STO-E016"):
            accounts.find("a@example.org", password)


def test_account_made_without_password_cannot_be_opened_or_taken_by_one(accounts):
    accounts.ensure("a@example.org", 1)
    for call in (accounts.find, lambda *pair: accounts.create(*pair, 1)):
        with pytest.raises(DeniedError, match="STO-E016"):
            call("a@example.org", HASH)


def test_only_real_keys_authenticate(accounts, tmp_path):
    made = accounts.ensure("a@example.org", 1, max_level="numeric")
    database = Database(f"sqlite:///{tmp_path / 'engine.sqlite'}")
    with database.read() as connection:
        for key in (made.key, made.weak_key):
            visitor = find_visitor(connection, SchedulerRequest(key, 0, 1, "c"))
            assert accounts.knows(key)
            found = (visitor.row.id, visitor.chosen.levels)
            assert found == (made.user_id, LEVELS[:2])
        for key in ("", "x", made.key[:-1], made.key + "0", "k" * 10_000):
            assert not accounts.knows(key)
            assert find_visitor(connection, SchedulerRequest(key, 0, 1, "c")) is None
    database.close()


def test_keys_depend_on_the_secret(tmp_path):
    database = Database(f"sqlite:///{tmp_path / 'engine.sqlite'}")
    database.upgrade()
    keys = {
        Accounts(database, secret * 32).ensure("a@example.org", 1).key
        for secret in (b"1", b"2")
    }
    assert len(keys) == 2
    database.close()


def test_secret_is_private_stable_and_checked(tmp_path):
    path = tmp_path / "account.secret"
    secret = load_secret(path)
    assert load_secret(path) == secret
    assert path.stat().st_mode & 0o777 == 0o600
    path.write_bytes(b"short")
    with pytest.raises(InternalError, match="STO-E005"):
        load_secret(path)


def test_key_says_whether_it_is_the_weak_one(accounts):
    made = accounts.ensure("a@example.org", 1)
    with accounts._database.read() as connection:
        assert user_of(connection, made.weak_key).weak
        assert not user_of(connection, made.key).weak


def test_new_keys_open_the_account_and_old_ones_nothing(accounts):
    old = accounts.ensure("a@example.org", 1)
    other = accounts.ensure("b@example.org", 1)
    new = accounts.change_keys(old.user_id)
    assert accounts.open_by_key(new.key) == new == accounts.ensure("a@example.org", 3)
    with pytest.raises(DeniedError, match="STO-E016"):
        accounts.open_by_key(old.key)
    with accounts._database.read() as connection:
        found = [
            user_of(connection, key)
            for key in (old.key, old.weak_key, new.key, new.weak_key, other.key)
        ]
    ids = [one and one.row.id for one in found]
    assert ids == [None, None, old.user_id, old.user_id, other.user_id]


def test_keys_never_come_back(accounts):
    user = accounts.ensure("a@example.org", 1).user_id
    made = [accounts.change_keys(user) for _ in range(5)]
    assert len({one.key for one in made} | {one.weak_key for one in made}) == 10


def test_keys_of_nobody_cannot_be_changed(accounts):
    with pytest.raises(DeniedError, match="STO-E016"):
        accounts.change_keys(7)


def test_account_over_the_web_is_unverified_until_the_operator_takes_it_over(accounts):
    squatted = accounts.create("a@example.org", HASH, 1)
    assert not squatted.verified
    kept = accounts.change_keys(squatted.user_id)
    assert not kept.verified
    assert accounts.find("a@example.org", HASH) == kept
    taken = accounts.take_over("A@example.org")
    assert taken.verified
    assert taken.user_id == squatted.user_id
    for call in (accounts.find, lambda *pair: accounts.create(*pair, 4)):
        with pytest.raises(DeniedError, match="STO-E016"):
            call("a@example.org", HASH)
