"""`stoilo audit verify --all`: its exit codes, its lines and its JSON."""

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from stoilo.audit.log.fsck import fsck_log
from stoilo.audit.log.sequencer import Sequencer
from stoilo.cli.main import main
from stoilo.core.errors import UsageError
from tests.support.faulty_log import LogKey

Opener = Callable[..., Sequencer]


def damage(path: Path) -> None:
    """Change the first byte of a file."""
    data = path.read_bytes()
    path.write_bytes(bytes([data[0] ^ 1]) + data[1:])


def test_no_log_is_a_usage_error(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="STO-L001"):
        fsck_log(tmp_path)
    with pytest.raises(UsageError, match="STO-L001"):
        fsck_log(tmp_path / "absent")


def test_command_exits_0_when_sound(
    filled: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["audit", "verify", "--all", str(filled)]) == 0
    assert "holds: 600 leaves" in capsys.readouterr().out


def test_command_exits_4_and_lists_faults(
    filled: Path, capsys: pytest.CaptureFixture[str], key: LogKey
) -> None:
    damage(filled / "audit/log/tile/0/001")
    damage(filled / "audit/log/tile/1/000.p/2")
    assert main(["audit", "verify", "--all", str(filled), "--policy", key.vkey]) == 4
    text = capsys.readouterr().out
    assert "audit/log/tile/0/001, hash 0 (leaf 256)" in text
    assert "audit/log/tile/1/000.p/2, hash 0 (leaves 0 to 255)" in text


def test_command_prints_json(filled: Path, capsys: pytest.CaptureFixture[str]) -> None:
    damage(filled / "audit/log/tile/0/001")
    assert main(["audit", "verify", "--all", str(filled), "--json"]) == 4
    answer = json.loads(capsys.readouterr().out)
    assert (answer["verified"], answer["is_proven"], answer["faults"]) == (
        False,
        True,
        1,
    )
    assert answer["findings"][0]["place"] == "hash 0 (leaf 256)"


def test_command_exits_2_without_a_log(tmp_path: Path) -> None:
    assert main(["audit", "verify", "--all", str(tmp_path)]) == 2
