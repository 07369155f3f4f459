"""What libraries do with their arguments was read by somebody, function by function.

The lists and how to renew them: `tests/sandbox/scan/read.py`.
"""

import collections
import subprocess
import sys
import types
from pathlib import Path

import pytest

from stoilo.flavors.describing.source_scan import scan_level
from stoilo.policies.levels import level_names
from stoilo.sandbox.process.supervisor import zygote_environment

FOLDER = Path(__file__).parent
UNREAD = "UNREAD"


def check(level):
    done = subprocess.run(
        [sys.executable, FOLDER / "read.py", level],
        capture_output=True,
        text=True,
        check=False,
        timeout=300,
        env=zygote_environment(),
    )
    assert done.returncode == 0, done.stderr[-2000:]
    assert UNREAD not in done.stdout, done.stdout.partition(UNREAD)[2]
    expected = (FOLDER / f"{level}.txt").read_text()
    assert done.stdout == expected, "functions went: renew the list"


@pytest.mark.parametrize("level", ["pure", "numeric"])
def test_every_trusting_function_was_read(level):
    check(level)


@pytest.mark.slow
def test_every_trusting_function_of_tensor_was_read():
    check("tensor")


def test_every_level_has_a_list_with_reasons():
    assert {path.stem for path in FOLDER.glob("*.txt")} == set(level_names())
    for path in FOLDER.glob("*.txt"):
        paragraphs = path.read_text().strip().split("\n\n")
        assert all(paragraph.startswith("# ") for paragraph in paragraphs)
        assert UNREAD not in path.read_text()


def trusting(value, name):
    return getattr(value, name)


def test_function_that_a_library_gains_is_found(pure):
    facade = types.ModuleType("grown")
    facade.trusting = trusting
    found = scan_level(pure, [facade])
    assert [item.patterns for item in found] == [("getattr()",)]


def test_formatting_method_of_a_library_class_is_found(pure):
    facade = types.ModuleType("grown")
    facade.UserString = collections.UserString
    names = {item.name for item in scan_level(pure, [facade])}
    assert "collections.UserString.format_map" in names
