import json
from pathlib import Path

import pytest

from stoilo.cli.main import main


@pytest.fixture(autouse=True)
def _clean_environment(monkeypatch) -> None:
    monkeypatch.delenv("STOILO_CONNECTION", raising=False)


def test_client_settings_are_shown_without_a_server(capsys, monkeypatch) -> None:
    monkeypatch.setenv("STOILO_CONNECTION", "here.json")
    assert main(["config", "show", "--origin"]) == 0
    assert capsys.readouterr().out == "client.connection = 'here.json'  (environment)\n"


def test_server_settings_name_their_origin(tmp_path: Path, capsys, monkeypatch) -> None:
    (tmp_path / "stoilo.toml").write_text("volunteers = 2\n", encoding="utf-8")
    monkeypatch.setenv("STOILO_SERVER_HTTP", "127.0.0.1:0")
    assert main(["config", "show", "--data", str(tmp_path), "--json"]) == 0
    settings = {one["name"]: one for one in json.loads(capsys.readouterr().out)}
    assert (settings["volunteers"]["value"], settings["volunteers"]["origin"]) == (
        2,
        "file",
    )
    assert settings["http"]["origin"] == "environment"
    assert settings["grpc"]["origin"] == "default"


def test_password_of_the_database_is_not_shown(tmp_path, capsys, monkeypatch) -> None:
    url = "mysql+pymysql://ada:hunter2@db.example/stoilo"
    monkeypatch.setenv("STOILO_SERVER_DATABASE", url)
    assert main(["config", "show", "--data", str(tmp_path)]) == 0
    out = capsys.readouterr().out
    assert "hunter2" not in out
    assert "ada:***@db.example" in out


def test_unknown_setting_exits_2(tmp_path: Path, capsys) -> None:
    (tmp_path / "stoilo.toml").write_text("volunters = 2\n", encoding="utf-8")
    assert main(["config", "show", "--data", str(tmp_path)]) == 2
    assert "STO-R090" in capsys.readouterr().err
