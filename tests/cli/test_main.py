"""What reaches a user when the system, and not the program, says no."""

import json

import pytest

from stoilo.cli.main import main


def test_error_of_the_system_is_a_message_with_a_code(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def refuse(**_: object) -> None:
        raise OSError(28, "No space left on device", "/somewhere")

    monkeypatch.setattr("stoilo.cli.main.cli.main", refuse)
    assert main(["explain"]) == 1
    assert capsys.readouterr().err == (
        "stoilo: No space left on device: /somewhere [STO-U006]\n"
    )


@pytest.mark.parametrize("words", [[], ["task"], ["boinc"]], ids=str)
def test_nothing_asked_is_answered_with_help(
    words: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(words) == 0
    shown = capsys.readouterr()
    assert (shown.out.startswith("Usage: stoilo"), shown.err) == (True, "")


def test_misspelt_command_is_guessed(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["polcy", "check"]) == 2
    assert "Did you mean 'policy'?" in capsys.readouterr().err


def test_wrong_command_line_is_told_in_json_where_that_is_asked(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert main(["task", "status", "--json"]) == 2
    said = json.loads(capsys.readouterr().err)["error"]
    assert (said["code"], "TASK_ID" in said["message"]) == ("STO-U003", True)
