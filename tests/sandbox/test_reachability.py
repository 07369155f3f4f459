"""What a task can reach, two calls deep, is what somebody looked at and committed."""

import difflib
import subprocess
import sys
from pathlib import Path

import pytest

from stoilo.policies.levels import level_names
from stoilo.sandbox.process.supervisor import zygote_environment

FOLDER = Path(__file__).parent / "reachable"
WALK = FOLDER / "walk.py"
PATCH_DEPENDENT = {"enum.Flag", "enum.IntFlag"}
"""Show `name` and `value`, or not: that changed between patch releases of CPython 3.11."""


LATER = FOLDER / "later" / "pythons.txt"
"""What a CPython after the lists' shows besides, looked at: 3.12 and 3.13, pure and numeric."""


def walk(*arguments):
    """Return the list of a level as this machine's libraries make it."""
    done = subprocess.run(
        [sys.executable, WALK, *arguments],
        capture_output=True,
        text=True,
        check=False,
        timeout=300,
        env=zygote_environment(),
    )
    assert done.returncode == 0, done.stderr[-2000:]
    return done.stdout


@pytest.mark.parametrize("name", ["pure", "numeric"])
def test_reachable_objects_are_the_committed_ones(name):
    compare(name, walk(name))


@pytest.mark.slow
def test_reachable_objects_of_tensor_are_the_committed_ones():
    compare("tensor", walk("tensor"))


def compare(name, found):
    expected = (FOLDER / f"{name}.txt").read_text()
    new = [
        line
        for line in difflib.unified_diff(expected.split("\n"), found.split("\n"), n=0)
        if line[:1] in "+-"
        and line[:3] not in {"+++", "---"}
        and line[1:].partition(":")[0] not in PATCH_DEPENDENT
    ]
    if sys.version_info >= (3, 12):
        known = LATER.read_text().split("\n")
        new = [line for line in new if line[0] == "+" and line[1:] not in known]
    assert new == [], f"look at each, then: python {WALK.name} {name} > {name}.txt"


def test_every_level_has_a_list():
    assert {path.stem for path in FOLDER.glob("*.txt")} == set(level_names())


@pytest.mark.parametrize("name", level_names())
def test_no_list_holds_a_leak(name):
    assert "LEAK" not in (FOLDER / f"{name}.txt").read_text()


def test_walk_sees_a_leak_two_calls_deep():
    assert "LEAK leaky.open_road().deeper()" in walk("--control", "pure")
