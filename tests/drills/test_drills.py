import json
import time
from pathlib import Path

import pytest
from click.testing import CliRunner

from tests.drills import second_writer
from tests.drills.__main__ import drills
from tests.drills.report import Drill, Notes, run_drill
from tests.drills.table import DRILLS, PROJECT_DRILLS
from tests.support.faulty_log import LogKey

GOOD, BAD = (True,), (False,)


def made(*holds: bool, contain: bool = True) -> Drill:
    def run(notes: Notes, folder: Path, defended: bool) -> None:
        del folder, defended
        notes.notice()
        for number, one in enumerate(holds):
            notes.expect(f"step {number}", one)
        if contain:
            notes.contain()

    return Drill("made", "for tests", "none", "nothing", run)


def silent(_: str) -> None:
    pass


def test_drill_is_contained_when_each_step_held(tmp_path: Path) -> None:
    report = run_drill(made(*GOOD, *GOOD), tmp_path, silent)
    assert report.contained
    assert report.seconds_to_contain is not None


@pytest.mark.parametrize(
    "failed", [made(*GOOD, *BAD), made(), made(*GOOD, contain=False)]
)
def test_drill_that_missed_something_is_not_contained(
    tmp_path: Path, failed: Drill
) -> None:
    assert not run_drill(failed, tmp_path, silent).contained


def test_time_runs_from_the_notice_to_the_first_containment() -> None:
    notes = Notes(silent)
    notes.contain()
    assert notes.contained_s is None
    notes.notice()
    time.sleep(0.01)
    notes.contain()
    first = notes.contained_s
    notes.contain()
    assert first is not None
    assert notes.contained_s == first >= 0.01


def test_every_drill_says_what_it_shows() -> None:
    assert len(DRILLS) == 10
    assert all(one.bound and one.defence and one.title for one in DRILLS.values())


def test_command_lists_the_drills_and_refuses_other_names() -> None:
    said = CliRunner().invoke(drills, ["--list"]).stdout
    assert [line.split()[0] for line in said.splitlines()] == list(DRILLS)
    assert CliRunner().invoke(drills, ["earthquake"]).exit_code == 2


@pytest.mark.parametrize(("holds", "code"), [(True, 0), (False, 4)])
def test_command_ends_with_what_it_found(
    monkeypatch: pytest.MonkeyPatch, holds: bool, code: int
) -> None:
    monkeypatch.setitem(DRILLS, "lost-log", made(holds))
    done = CliRunner().invoke(drills, ["lost-log", "--json"])
    assert done.exit_code == code
    report = json.loads(done.stdout)
    assert report["contained"] is holds
    assert report["steps"][0]["text"] == "step 0"


def test_command_prints_bound_and_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(DRILLS, "lost-log", made(*GOOD))
    said = CliRunner().invoke(drills, ["lost-log"]).stdout
    assert "contained in" in said
    assert "bound: none" in said


@pytest.mark.parametrize("defended", [True, False])
def test_two_real_writers_of_one_log(tmp_path: Path, defended: bool) -> None:
    """With the head database one is stopped; *control*: without it both go on."""
    notes = Notes(silent)
    second_writer._race(notes, tmp_path / "log", defended=defended)
    assert all(step.holds for step in notes.steps) is defended
    assert LogKey(second_writer.ORIGIN).vkey
    assert (notes.contained_s is not None) is defended


@pytest.mark.slow
@pytest.mark.parametrize("defended", [True, False], ids=["defended", "control"])
@pytest.mark.parametrize("name", [one.name for one in PROJECT_DRILLS])
def test_drill_is_contained_and_fails_without_its_defence(
    tmp_path: Path, name: str, defended: bool
) -> None:
    report = run_drill(DRILLS[name], tmp_path, silent, defended=defended)
    assert report.contained is defended, report.steps
