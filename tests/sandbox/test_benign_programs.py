"""Research programs give CPython's very answer through both layers, to the last bit."""

import json
import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

from stoilo.core.codec import skeleton
from stoilo.core.types import RunStatus
from stoilo.sandbox.process.channel import TASK_JOB, TaskRequest
from stoilo.sandbox.process.run import run_task
from stoilo.sandbox.process.supervisor import Jail, zygote_environment

CASES = Path(__file__).parents[1] / "attack" / "cases"
PROGRAMS = sorted(
    path for name in ("benign", "benign_numeric") for path in CASES.glob(f"{name}/*.py")
)
HEADER = re.compile(r"# /// stoilo-case\n((?:#.*\n)*?)# ///\n")
PLAIN_CPYTHON = """
import contextlib, io, json, os, sys, types, warnings
import numpy
from stoilo.core.codec import skeleton
from stoilo.core.codec.nodes import to_node

def answer(source, kwargs):
    module = sys.modules["stoilo_task"] = types.ModuleType("stoilo_task")
    printed = io.StringIO()
    warnings.simplefilter("ignore")
    with contextlib.redirect_stdout(printed):
        exec(compile(source, "<task>", "exec", dont_inherit=True), module.__dict__)
        value = module.run(kwargs)
    return skeleton.encode(to_node(value)).hex(), printed.getvalue()

for line in sys.stdin:
    sys.stdout.flush()
    if os.fork() == 0:
        try:
            json.dump(answer(*json.loads(line)), sys.stdout)
        except BaseException as error:
            json.dump([f"{type(error).__name__}: {error}", ""], sys.stdout)
        print(flush=True)
        os._exit(0)
    os.wait()
"""
"""Runs each line's program in a fork of its own; set up as the zygote is."""


def read_case(path):
    """Return source, level and arguments of one case."""
    source = path.read_text(encoding="utf-8")
    lines = HEADER.match(source)[1].splitlines()
    fields = tomllib.loads("\n".join(line[2:] for line in lines))
    return source, fields.get("level", "pure"), fields.get("kwargs", {})


def run_plainly(cases):
    """Return [encoded value in hex or error, printed] for each (source, kwargs)."""
    done = subprocess.run(
        [sys.executable, "-s", "-P", "-c", PLAIN_CPYTHON],
        env=zygote_environment(),
        input="".join(json.dumps(case) + "\n" for case in cases),
        capture_output=True,
        text=True,
        timeout=280,
        check=True,
    )
    return [json.loads(line) for line in done.stdout.splitlines()]


@pytest.fixture(scope="module")
def answers():
    cases = [read_case(path) for path in PROGRAMS]
    found = run_plainly([(source, kwargs) for source, _, kwargs in cases])
    return dict(zip(PROGRAMS, found, strict=True))


@pytest.fixture(scope="module")
def jails(shipped_levels):
    pure, numeric = shipped_levels
    with Jail(pure, TASK_JOB) as first, Jail(numeric, TASK_JOB) as second:
        yield {"pure": (first, pure), "numeric": (second, numeric)}


def test_there_are_enough_programs():
    assert len(PROGRAMS) >= 100
    assert sum(path.parent.name == "benign_numeric" for path in PROGRAMS) >= 40


def test_plain_run_sees_another_answer():
    first, second = run_plainly(
        [("def run(d): return 1", {}), ("def run(d): return 2", {})]
    )
    assert first != second
    assert skeleton.decode(bytes.fromhex(second[0])) == 2


@pytest.mark.parametrize("path", PROGRAMS, ids=lambda path: path.stem)
def test_program_gives_cpythons_answer(answers, jails, path):
    source, level, kwargs = read_case(path)
    jail, rules = jails[level]
    request = TaskRequest(source, "run", skeleton.encode(kwargs), now=1_700_000_000)
    outcome = run_task(jail, request, rules.default_limits())
    assert outcome.status is RunStatus.OK, outcome
    expected, printed = answers[path]
    assert outcome.value.hex() == expected
    assert outcome.output == printed
