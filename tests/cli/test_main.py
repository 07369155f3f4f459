"""What reaches a user when the system, and not the program, says no."""

import json
from collections.abc import Iterator
from pathlib import Path

import click
import pytest

from stoilo.cli.main import cli, main


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


NO_JSON = {
    "completion": "a line for a shell",
    "man": "roff, for man",
    "volunteer run": "runs until stopped; `volunteer status` says what it does",
}


def ends(command: click.Command, path: str = "") -> Iterator[tuple[str, click.Command]]:
    """Yield every command that is no group, by its words."""
    if not isinstance(command, click.Group):
        yield path.strip(), command
        return
    context = click.Context(command)
    for name in command.list_commands(context):
        inner = command.get_command(context, name)
        assert inner is not None
        yield from ends(inner, f"{path} {name}")


def test_every_command_answers_in_json_but_those_with_a_reason() -> None:
    without = {
        path
        for path, command in ends(cli)
        if not any("--json" in option.opts for option in command.params)
    }
    assert without == set(NO_JSON)


@pytest.mark.parametrize(
    ("words", "guess"),
    [
        ("task sumbit", "submit"),
        ("task status x --jsno", "--json"),
        ("policy review sgin", "sign"),
        ("volunteer suspnd", "suspend"),
        ("sandbox selftest --levle pure", "--level"),
        ("up --dta x", "--data"),
    ],
)
def test_misspelt_words_are_guessed_in_every_group(
    words: str, guess: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(words.split()) == 2
    shown = capsys.readouterr()
    assert (shown.out, f"'{guess}'" in shown.err) == ("", True)


def test_file_that_is_not_there_is_named_whole(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    missing = tmp_path / "deep" / "none.json"
    assert main(["task", "list", "--connection", str(missing)]) == 2
    assert str(missing) in capsys.readouterr().err
