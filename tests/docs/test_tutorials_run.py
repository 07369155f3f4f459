"""Tutorials' commands run as printed, in order, and print what the page shows."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from stoilo.testing.deployment import Deployment

pytestmark = pytest.mark.slow
TUTORIALS = Path(__file__).resolve().parents[2] / "docs" / "tutorial"
BLOCK = re.compile(
    r"^```(console|python title=\"([\w.]+)\")\n(.*?)^```$", re.MULTILINE | re.DOTALL
)
VARIES = re.compile(r"[0-9a-f]{8,}|\d[\d.]*")


def steps_of(page):
    """Yield a page's files, and its commands with the lines that each prints."""
    for _, name, body in BLOCK.findall((TUTORIALS / page).read_text()):
        if name:
            yield name, body
            continue
        for told in re.split(r"^\$ ", body, flags=re.MULTILINE)[1:]:
            command, _, shown = told.partition("\n")
            yield command, shown


def run_page(page, folder):
    """Return what each command printed beside what the page shows, numbers made alike."""
    path = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
    found = []
    for command, shown in steps_of(page):
        if command.endswith(".py") and " " not in command:
            (folder / command).write_text(shown)
            continue
        done = subprocess.run(
            ["sh", "-c", command], cwd=folder, env=os.environ | {"PATH": path},
            stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False,
        )  # fmt: skip
        refused = "[STO-" in shown
        assert (done.returncode != 0) == refused, f"{command}: {done.stdout}"
        said = {
            " ".join(VARIES.sub("#", line).split()) for line in done.stdout.splitlines()
        }
        found.append((command, said, shown))
    return found


@pytest.mark.parametrize("page", ["first-project.md"])
def test_each_command_prints_what_the_page_shows(page, tmp_path):
    with Deployment(tmp_path / "project", volunteers=2):
        found = run_page(page, tmp_path)
    assert len(found) > 5
    for command, said, shown in found:
        wanted = [
            " ".join(VARIES.sub("#", line).split()) for line in shown.splitlines()
        ]
        assert [line for line in wanted if line not in said] == [], command
