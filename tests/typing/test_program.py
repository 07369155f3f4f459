"""The public names have types that help: mypy is asked, strictly."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

HERE = Path(__file__).parent
ROOT = HERE.parent.parent


def check(name: str) -> tuple[int, str]:
    """Return mypy's exit code and words on one of our programs."""
    command = [sys.executable, "-m", "mypy", "--strict", "--no-error-summary"]
    done = subprocess.run(
        [*command, "--config-file", "pyproject.toml", str(HERE / name)],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    return done.returncode, done.stdout + done.stderr


def test_program_of_a_researcher_has_the_types_it_says() -> None:
    assert check("program.py") == (0, "")


def test_mistakes_are_found_and_nothing_else() -> None:
    text = (HERE / "mistakes.py").read_text()
    wanted = [
        (number, kind)
        for number, line in enumerate(text.splitlines(), 1)
        for kind in re.findall(r"# error: (\S+)$", line)
    ]
    code, words = check("mistakes.py")
    found = re.findall(r"mistakes\.py:(\d+): error: .*\[(\S+)\]", words)
    assert code == 1
    assert [(int(number), kind) for number, kind in found] == wanted
