"""`stoilo sandbox suite`: exit codes and the report's form."""

import json

import pytest

from stoilo.cli.main import main

CASE = """# /// stoilo-case
# idea = "open a file"
# stopped_by = "gate"
# code = "{code}"
# ///
def run(kwargs):
    return open(kwargs["canary"]).read()
"""


@pytest.mark.parametrize(("code", "status"), [("STO-G020", 0), ("STO-G101", 4)])
def test_status_says_whether_every_case_ended_as_expected(
    tmp_path, capsys, code, status
):
    (tmp_path / "case.py").write_text(CASE.format(code=code))
    command = ["sandbox", "suite", str(tmp_path), "--format", "json", "--jobs", "2"]
    assert main(command) == status
    shown = json.loads(capsys.readouterr().out)
    names = [step["name"] for step in shown["cases"][0]["steps"]]
    assert names[:2] == ["every layer", "without the gate"]
    assert shown["summary"]["as_expected"] == (status == 0)


def test_controls_run_only_when_asked_for(tmp_path, capsys):
    (tmp_path / "case.py").write_text(CASE.format(code="STO-G020"))
    assert main(["sandbox", "suite", str(tmp_path), "--controls"]) == 0
    assert "1 cases, 5 runs: 1 as expected" in capsys.readouterr().out


@pytest.mark.parametrize(("level", "cases"), [("pure", 1), ("numeric", 2)])
def test_cases_of_wider_levels_are_left_out(tmp_path, capsys, level, cases):
    text = CASE.format(code="STO-G020")
    (tmp_path / "narrow.py").write_text(text)
    (tmp_path / "wide.py").write_text(
        text.replace("# idea", '# level = "numeric"\n# idea')
    )
    assert main(["sandbox", "suite", str(tmp_path), "--level", level]) == 0
    assert f"{cases} cases" in capsys.readouterr().out


@pytest.mark.parametrize("text", [None, "x = 1\n", CASE.format(code='"')])
def test_no_case_or_a_broken_one_is_a_usage_error(tmp_path, capsys, text):
    if text is not None:
        (tmp_path / "case.py").write_text(text)
    assert main(["sandbox", "suite", str(tmp_path)]) == 2
    assert "STO-S04" in capsys.readouterr().err


def test_folder_that_does_not_exist_is_a_usage_error(tmp_path, capsys):
    assert main(["sandbox", "suite", str(tmp_path / "none")]) == 2
    assert "does not exist" in capsys.readouterr().err
