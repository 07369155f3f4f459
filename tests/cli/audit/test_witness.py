import json
import stat
from pathlib import Path

import pytest
from click.testing import CliRunner

from stoilo.audit.format.note import parse_vkey
from stoilo.cli.main import cli
from stoilo.core.errors import UsageError
from stoilo.signer.development.root import create_development_root
from tests.support.gate import INSTALLED, NOW


def run(*words: str) -> str:
    done = CliRunner().invoke(cli, ["audit", *words], catch_exceptions=False)
    assert done.exit_code == 0, done.output
    return done.output


def test_witness_key_is_printed_and_stays(tmp_path: Path) -> None:
    words = ["key", "witness", "--data", str(tmp_path / "w"), "--name", "w.example/1"]
    first = run(*words)
    assert parse_vkey(first.strip()).name == "w.example/1"
    assert json.loads(run(*words, "--json")) == {
        "name": "w.example/1",
        "vkey": first.strip(),
    }


def test_ml_dsa_key_is_printed(tmp_path: Path) -> None:
    words = ["--data", str(tmp_path), "--name", "w", "--algorithm", "ml-dsa-44"]
    assert len(run("key", "witness", *words)) > 1312


def test_log_key_is_the_one_that_the_server_will_use(tmp_path: Path) -> None:
    words = ["key", "log", "--data", str(tmp_path / "data"), "--name", "lab.example/p"]
    printed = run(*words).strip()
    assert stat.S_IMODE((tmp_path / "data").stat().st_mode) == 0o700
    root = create_development_root(
        tmp_path / "data" / "keys", "lab.example/p", NOW, installed=INSTALLED
    )
    assert root.log_vkey == printed == run(*words).strip()
    assert json.loads(run(*words, "--json"))["name"] == "lab.example/p"


def test_missing_file_of_logs_is_named(tmp_path: Path) -> None:
    run("key", "witness", "--data", str(tmp_path), "--name", "w.example/1")
    words = ["witness", "--data", str(tmp_path), "--logs", str(tmp_path / "none")]
    with pytest.raises(UsageError, match="STO-U004"):
        run(*words)
