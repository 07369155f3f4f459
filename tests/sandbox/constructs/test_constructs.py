"""The construct matrix: each construct works as in CPython, and its abuse is refused.

One file a construct: the honest program, then after ``# abuse: CODE`` the program that
reaches its goal in plain CPython (the control) and ends with that code in a task.
"""

from __future__ import annotations

import contextlib
import io
import re
import subprocess
import sys
import types
from io import StringIO
from pathlib import Path

import pytest

from stoilo.core.codec import skeleton
from stoilo.core.codec.nodes import to_node
from stoilo.sandbox.process.task_job import run_call

PROGRAMS = sorted((Path(__file__).parent / "programs").glob("*.py"))
MARKER = re.compile(r"^# abuse: (STO-[GP]\d{3})\n", re.MULTILINE)
REACHED = "REACHED"
EXPECTED = 40
CONTROL = "import sys; exec(sys.stdin.read()); print(run({}))"


def read_program(path):
    """Return the honest program, the code and the abuse."""
    honest, code, abuse = MARKER.split(path.read_text(encoding="utf-8"))
    return honest, code, abuse


def run_in_task(runtime, source):
    request = {
        "source": source,
        "entry": "run",
        "arguments": skeleton.encode({}),
        "blobs": [],
        "seed": "00" * 32,
        "now": 0,
        "items": 0,
    }
    output = StringIO()
    return run_call(runtime, skeleton.encode(request), output), output.getvalue()


def run_plainly(source, monkeypatch):
    module = types.ModuleType("plain_construct")
    monkeypatch.setitem(sys.modules, module.__name__, module)
    with contextlib.redirect_stdout(io.StringIO()) as output:
        exec(compile(source, "<plain>", "exec", dont_inherit=True), module.__dict__)  # noqa: S102
        return module.run({}), output.getvalue()


@pytest.mark.parametrize("path", PROGRAMS, ids=lambda path: path.stem)
def test_construct_gives_cpythons_very_answer(runtimes, monkeypatch, path):
    honest, _, _ = read_program(path)
    frame, printed = run_in_task(runtimes["pure"], honest)
    value, plainly_printed = run_plainly(honest, monkeypatch)
    assert frame["status"] == "ok", frame
    assert (frame["value"], printed) == (
        skeleton.encode(to_node(value)),
        plainly_printed,
    )


@pytest.mark.parametrize("path", PROGRAMS, ids=lambda path: path.stem)
def test_abuse_of_the_construct_is_refused(runtimes, path):
    _, code, abuse = read_program(path)
    frame, _ = run_in_task(runtimes["pure"], abuse)
    assert (frame["status"], frame["code"]) == ("refused", code), frame


@pytest.mark.parametrize("path", PROGRAMS, ids=lambda path: path.stem)
def test_abuse_of_the_construct_works_in_plain_cpython(path):
    done = subprocess.run(
        [sys.executable, "-I", "-c", CONTROL],
        input=read_program(path)[2],
        capture_output=True,
        text=True,
        check=False,
        timeout=200,
    )
    assert done.stdout.strip() == REACHED, done.stderr


def test_matrix_is_not_empty():
    assert len(PROGRAMS) >= EXPECTED
