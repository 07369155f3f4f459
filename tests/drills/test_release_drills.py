from pathlib import Path

import pytest
from click.testing import CliRunner

from tests.drills.__main__ import drills
from tests.drills.report import run_drill
from tests.drills.table import DRILLS, RELEASE_DRILLS

NAMES = [one.name for one in RELEASE_DRILLS]


def run(tmp_path: Path, name: str, *, defended: bool) -> tuple[bool, list[str]]:
    """Return whether a drill was contained, and the steps that failed."""
    report = run_drill(DRILLS[name], tmp_path, lambda _: None, defended=defended)
    return report.contained, [step.text for step in report.steps if not step.holds]


@pytest.mark.parametrize("name", NAMES)
def test_drill_is_contained(tmp_path: Path, name: str) -> None:
    assert run(tmp_path, name, defended=True) == (True, [])


@pytest.mark.parametrize("name", NAMES)
def test_drill_without_its_defence_is_not_contained(tmp_path: Path, name: str) -> None:
    contained, failed = run(tmp_path, name, defended=False)
    assert not contained
    assert failed


def test_drill_leaves_nothing_behind(tmp_path: Path, monkeypatch) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    assert CliRunner().invoke(drills, ["rotate-one-key"]).exit_code == 0
    assert list(tmp_path.iterdir()) == []
