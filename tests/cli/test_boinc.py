from __future__ import annotations

import json

import pytest

from stoilo.cli.main import main
from stoilo.server.engines.embedded.engine import EmbeddedEngine


@pytest.fixture
def data(tmp_path):
    EmbeddedEngine(tmp_path / "engine").close()
    return str(tmp_path)


def account(data, *more):
    return main(["boinc", "account", "--data", data, "--email", "a@example.org", *more])


def test_account_prints_its_weak_key_alone(data, capsys):
    assert account(data) == 0
    first = capsys.readouterr().out
    assert account(data) == 0
    assert capsys.readouterr().out == first
    assert len(first.strip()) == 32


def test_account_as_json_shows_no_strong_key(data, capsys):
    assert account(data, "--json", "--max-level", "numeric") == 0
    shown = json.loads(capsys.readouterr().out)
    assert set(shown) == {"user_id", "email", "key", "max_level", "name"}
    assert shown["max_level"] == "numeric"


def test_key_works_beside_the_running_server(data, tmp_path, capsys):
    engine = EmbeddedEngine(tmp_path / "engine")
    account(data)
    key = capsys.readouterr().out.strip()
    with engine._database.read() as connection:
        assert engine.accounts.authenticate(connection, key) is not None
    engine.close()


def test_directory_without_a_server_is_a_usage_error(tmp_path, capsys):
    assert account(str(tmp_path / "none")) == 2
    assert "STO-U004" in capsys.readouterr().err


def test_bad_level_is_a_usage_error(data, capsys):
    assert account(data, "--max-level", "root") == 2
    assert "STO-E015" in capsys.readouterr().err
