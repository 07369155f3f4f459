"""What reaches a user when the system, and not the program, says no."""

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
