import json
from pathlib import Path

import pytest

from stoilo.cli.audit.removal import parse_day
from stoilo.cli.main import main
from stoilo.core.errors import UsageError
from stoilo.server.db.store import Store


@pytest.fixture
def data(tmp_path: Path) -> Path:
    """Return the data directory of a stopped server without tasks."""
    (tmp_path / "audit").mkdir()
    Store.open(f"sqlite:///{tmp_path / 'server.sqlite'}").close()
    return tmp_path


def retain(data: Path, *more: str, before: str = "2026-01-31") -> int:
    given = ["--data", str(data), "--what", "sources", "--before", before]
    return main(["audit", "retain", *given, *more])


def test_nothing_old_is_said_so(data: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert retain(data) == 0
    assert "Nothing to delete" in capsys.readouterr().out
    assert retain(data, "--json") == 0
    found = json.loads(capsys.readouterr().out)
    assert (found["what"], found["count"], found["published"]) == ("sources", 0, [])


@pytest.mark.parametrize(
    ("before", "code"),
    [("tomorrow", "STO-U003"), ("9999-01-01", "STO-U003"), ("2026-13-01", "STO-U003")],
)
def test_day_that_is_none_or_to_come_is_a_usage_error(
    data: Path, before: str, code: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert retain(data, before=before) == 2
    assert code in capsys.readouterr().err


def test_directory_of_no_server_is_a_usage_error(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert retain(tmp_path / "none") == 2
    assert "STO-U004" in capsys.readouterr().err


def test_day_begins_at_midnight_utc() -> None:
    assert parse_day("1970-01-02") == 86_400
    with pytest.raises(UsageError, match="STO-U003"):
        parse_day("1970-1")
