"""Every program reaches its goal in plain CPython (the control) and not in a task."""

from __future__ import annotations

import enum
import re
import subprocess
import sys
from collections.abc import Iterator
from importlib import resources
from pathlib import Path

import pytest

from stoilo.core import skeleton
from stoilo.core.levels import parse_level
from stoilo.sandbox.capture_print import TextBuffer
from stoilo.sandbox.jobs.task import run_call
from stoilo.sandbox.loader import LanguageRuntime, prepare_runtime

PROGRAMS = sorted((Path(__file__).parent / "programs").glob("*.py"))
HEADER = re.compile(r"# expect: (\w+) ?(STO-G\d{3})?\n# level: (\w+)\n")
SEEN = re.compile(r"^# seen in: ([\d.]+)$", re.MULTILINE)
GOAL = "ESCAPED"


@pytest.fixture(scope="module")
def runtimes() -> Iterator[dict[str, LanguageRuntime]]:
    call = enum.EnumMeta.__call__
    folder = resources.files("stoilo.policies") / "levels"
    yield {
        name: prepare_runtime(parse_level((folder / f"{name}.toml").read_bytes()))
        for name in ("pure", "numeric")
    }
    enum.EnumMeta.__call__ = call


CONTROL = """
import sys, types, warnings
warnings.simplefilter("ignore")
module = sys.modules["attack"] = types.ModuleType("attack")
module.__dict__["__package__"] = "attack"
source = open(sys.argv[1], encoding="utf-8").read()
exec(compile(source, "<control>", "exec"), module.__dict__)
print(module.run({}))
"""


def run_plainly(path: Path) -> str:
    """Run a program in a CPython of its own: some of them break modules."""
    done = subprocess.run(
        [sys.executable, "-I", "-c", CONTROL, str(path)],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    return done.stdout.strip() or done.stderr


def first_open_in(path: Path) -> tuple[int, ...]:
    """Return the version of the header ``# seen in:``, where older CPythons may differ."""
    found = SEEN.search(path.read_text(encoding="utf-8"))
    return tuple(map(int, found[1].split("."))) if found else (0,)


@pytest.mark.parametrize("path", PROGRAMS, ids=lambda path: path.stem)
def test_attack_is_stopped_with_its_code(runtimes, path) -> None:
    source = path.read_text(encoding="utf-8")
    status, code, level = HEADER.match(source).groups()
    request = {
        "source": source,
        "entry": "run",
        "arguments": skeleton.encode({}),
        "blobs": [],
        "seed": "00" * 32,
        "now": 0,
        "items": 0,
    }
    frame = run_call(runtimes[level], skeleton.encode(request), TextBuffer())
    if status == "value":
        assert frame["status"] != "ok" or skeleton.decode(frame["value"]) != GOAL
    else:
        assert (frame["status"], frame["code"]) == (status, code), frame


@pytest.mark.parametrize("path", PROGRAMS, ids=lambda path: path.stem)
def test_attack_works_in_plain_cpython(path) -> None:
    answer = run_plainly(path)
    if answer != GOAL and sys.version_info[:3] < first_open_in(path):
        pytest.skip("this CPython is older than the one in which the hole was seen")
    assert answer == GOAL
