"""`stoilo sandbox run` refuses exactly what `stoilo policy check` refuses."""

import json
from pathlib import Path

import pytest

from stoilo.cli.main import main
from stoilo.core.types import BOUNDS

TASK = b"def task(kwargs):\n    return 1\n"

REFUSED = {
    "bidi": TASK + "# \u202e\n".encode(),
    "NUL": TASK + b"#\0\n",
    "not UTF-8": TASK + b"#\xff\n",
    "mixed script": TASK + "p\u0430yload = 1\n".encode(),
    "line too long": TASK + b"#" + b"x" * 10_001 + b"\n",
    "too large": TASK + b"#" * BOUNDS.source_bytes,
    "too deep": TASK + b"x = " + b"(" * 500 + b")" * 500 + b"\n",
    "import of os": b"import os\n" + TASK,
    "private attribute": b"def task(kwargs):\n    return kwargs.__class__.__bases__\n",
    "two parameters": b"def task(a, b):\n    return 1\n",
    "syntax": b"def task(kwargs:\n",
}


def run(arguments, capsys) -> tuple[int, dict[str, object]]:
    code = main(arguments)
    return code, json.loads(capsys.readouterr().out.splitlines()[-1])


@pytest.mark.parametrize("name", REFUSED)
def test_static_refusal_is_that_of_policy_check(name, tmp_path: Path, capsys) -> None:
    file = tmp_path / "task.py"
    file.write_bytes(REFUSED[name])
    checked, verdict = run(["policy", "check", str(file), "--json"], capsys)
    ran, outcome = run(["sandbox", "run", str(file), "--json"], capsys)
    assert (checked, ran) == (3, 3)
    assert (outcome["status"], outcome["layer"]) == ("refused", "gate")
    assert outcome["code"] == verdict["findings"][0]["code"]
    assert set(outcome) == {
        *("status", "value", "error", "code", "layer", "output", "limit", "usage")
    }


def test_level_is_the_one_given(tmp_path: Path, capsys) -> None:
    file = tmp_path / "task.py"
    file.write_bytes(b"import numpy\ndef task(kwargs):\n    return 1\n")
    assert run(["sandbox", "run", str(file), "--json"], capsys)[0] == 3
    numeric = ["sandbox", "run", str(file), "--level", "numeric", "--json"]
    assert run(numeric, capsys)[0] == 0


def test_admitted_source_runs(tmp_path: Path, capsys) -> None:
    file = tmp_path / "task.py"
    file.write_bytes(TASK)
    code, outcome = run(["sandbox", "run", str(file), "--json"], capsys)
    assert (code, outcome["status"], outcome["value"]) == (0, "ok", 1)


def test_constant_beyond_all_memory_ends_at_the_limit(tmp_path: Path, capsys) -> None:
    file = tmp_path / "task.py"
    file.write_bytes(b"def task(kwargs):\n    return [0] * 10**10\n")
    assert run(["policy", "check", str(file), "--json"], capsys)[0] == 3
    code, outcome = run(["sandbox", "run", str(file), "--json"], capsys)
    assert (code, outcome["layer"], outcome["limit"]) == (4, "limits", "memory_bytes")


@pytest.mark.parametrize("options", [["--entry", "nowhere"], []])
def test_missing_function_is_a_usage_error(options, tmp_path: Path, capsys) -> None:
    file = tmp_path / "task.py"
    file.write_bytes(TASK if options else b"x = 1\n")
    assert main(["sandbox", "run", str(file), *options]) == 2
    assert "STO-P030" in capsys.readouterr().err


@pytest.mark.parametrize(
    "data",
    [
        TASK.replace(b"\n", b"\r\n"),
        TASK + b"if __name__ == '__main__':\n    task({})\n",
    ],
    ids=["CRLF", "script block"],
)
def test_file_of_a_script_runs_as_a_task(data, tmp_path: Path, capsys) -> None:
    file = tmp_path / "script.py"
    file.write_bytes(data)
    code, outcome = run(["sandbox", "run", str(file), "--json"], capsys)
    assert (code, outcome["value"]) == (0, 1)
