import json
from pathlib import Path

import pytest
from click.testing import CliRunner

from stoilo.cli.drills.release_table import RELEASE_DRILLS, find_release_drill
from stoilo.cli.drills.report import run_drill
from stoilo.cli.main import cli
from stoilo.core.errors import UsageError

NAMES = [one.name for one in RELEASE_DRILLS]


def run(tmp_path: Path, name: str, *, defended: bool) -> tuple[bool, list[str]]:
    """Return whether a drill was contained, and the steps that failed."""
    report = run_drill(
        find_release_drill(name), tmp_path, lambda _: None, defended=defended
    )
    return report.contained, [step.text for step in report.steps if not step.holds]


@pytest.mark.parametrize("name", NAMES)
def test_drill_is_contained(tmp_path: Path, name: str) -> None:
    assert run(tmp_path, name, defended=True) == (True, [])


@pytest.mark.parametrize("name", NAMES)
def test_drill_without_its_defence_is_not_contained(tmp_path: Path, name: str) -> None:
    contained, failed = run(tmp_path, name, defended=False)
    assert not contained
    assert failed


def test_command_shows_each_step_the_time_and_the_bound() -> None:
    result = CliRunner().invoke(cli, ["release", "drill", "stolen-online-key"])
    assert result.exit_code == 0
    assert "  ok   a host that was away follows too" in result.output
    assert "contained in " in result.output
    assert "bound: " in result.output


def test_command_ends_with_4_when_it_was_not_contained() -> None:
    result = CliRunner().invoke(
        cli, ["release", "drill", "lost-key", "--without-defence", "--json"]
    )
    assert result.exit_code == 4
    assert json.loads(result.output)["contained"] is False


def test_drills_are_listed() -> None:
    result = CliRunner().invoke(cli, ["release", "drill", "--list", "--json"])
    assert [row["name"] for row in json.loads(result.output)] == NAMES


@pytest.mark.parametrize("arguments", [[], ["no-such-drill"]])
def test_other_names_are_a_usage_error(arguments: list[str]) -> None:
    result = CliRunner().invoke(cli, ["release", "drill", *arguments])
    assert isinstance(result.exception, UsageError)
    assert result.exception.code == "STO-K084"


def test_drill_leaves_nothing_behind(tmp_path: Path, monkeypatch) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    assert (
        CliRunner().invoke(cli, ["release", "drill", "rotate-one-key"]).exit_code == 0
    )
    assert list(tmp_path.iterdir()) == []
