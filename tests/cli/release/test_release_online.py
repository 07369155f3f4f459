import json
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from stoilo.cli.main import cli
from stoilo.core.errors import UsageError
from stoilo.signer.development.root import create_development_root
from stoilo.signer.process.online_keys import parse_online_keys
from tests.support.gate import INSTALLED, NOW

ORIGIN = "project.example/log"


def call(folder: Path, *more: str) -> Result:
    words = ["--data", str(folder / "data"), "--out", str(folder / "online.json")]
    words = ["release", "online-keys", *words, *more]
    return CliRunner().invoke(cli, words, catch_exceptions=False)


def test_file_for_the_ceremony_is_written_and_the_next_step_said(
    tmp_path: Path,
) -> None:
    result = call(tmp_path, "--origin", ORIGIN)
    keys = parse_online_keys((tmp_path / "online.json").read_bytes())
    assert keys.origin == ORIGIN
    assert "stoilo release init" in result.output
    assert keys.log_vkey in result.output


def test_no_private_key_is_printed_or_carried_away(tmp_path: Path) -> None:
    result = call(tmp_path, "--origin", ORIGIN, "--json")
    shown = result.output + (tmp_path / "online.json").read_text()
    for file in (tmp_path / "data" / "keys" / "online").iterdir():
        secret = file.read_text().split("\n")[1]
        assert secret not in shown


def test_second_call_needs_no_name_and_asks_for_more_epochs(tmp_path: Path) -> None:
    call(tmp_path, "--origin", ORIGIN, "--epochs", "2")
    result = call(tmp_path, "--epochs", "5", "--json")
    assert len(json.loads(result.output)["epochs"]) == 5


def test_name_may_come_from_the_server_s_settings(tmp_path: Path) -> None:
    (tmp_path / "data").mkdir()
    (tmp_path / "data" / "stoilo.toml").write_text(f'origin = "{ORIGIN}"\n')
    assert json.loads(call(tmp_path, "--json").output)["origin"] == ORIGIN


def test_project_without_a_name_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="STO-K092") as refusal:
        call(tmp_path)
    assert "--origin" in (refusal.value.hint or "")


def test_development_root_is_left_alone(tmp_path: Path) -> None:
    keys = tmp_path / "data" / "keys"
    (tmp_path / "data").mkdir()
    create_development_root(keys, ORIGIN, NOW, installed=INSTALLED)
    with pytest.raises(UsageError, match="STO-K091"):
        call(tmp_path, "--origin", ORIGIN)


def test_second_key_is_made_after_a_theft(tmp_path: Path) -> None:
    first = json.loads(call(tmp_path, "--origin", ORIGIN, "--json").output)
    second = json.loads(call(tmp_path, "--replace", "online", "--json").output)
    assert first["online"] != second["online"]
    assert first["log_vkey"] == second["log_vkey"]
