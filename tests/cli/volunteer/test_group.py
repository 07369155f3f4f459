from __future__ import annotations

import pytest

from stoilo.cli.main import main


@pytest.mark.parametrize(
    ("changes", "code"),
    [
        ({"--project": "x"}, "STO-U003"),
        ({"--key": "@/none"}, "STO-U004"),
        ({"--root": "/none"}, "STO-U004"),
        ({"--slots": "0"}, "STO-U003"),
    ],
)
def test_bad_argument_exits_2_with_its_code(tmp_path, capsys, changes, code):
    options = {
        "--project": "http://127.0.0.1:1/",
        "--key": "k",
        "--state": str(tmp_path),
        "--root": str(tmp_path / "root.json"),
    } | changes
    arguments = [part for pair in options.items() for part in pair]
    assert main(["volunteer", *arguments]) == 2
    assert code in capsys.readouterr().err
