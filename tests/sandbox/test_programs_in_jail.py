"""The same research programs through both layers: nothing must be missing in the jail."""

import warnings
from pathlib import Path

import pytest

from stoilo.core import skeleton
from stoilo.core.types import RunStatus
from stoilo.sandbox.capture_print import TextBuffer
from stoilo.sandbox.jobs.task import run_call
from stoilo.sandbox.run import TASK_JOB, TaskRequest, run_task
from stoilo.sandbox.supervisor import Jail

PROGRAMS = sorted((Path(__file__).parent / "programs" / "benign").glob("*.py"))
ARGUMENTS = {"parts": 3}


@pytest.fixture(scope="module")
def jails(shipped_levels):
    pure, numeric = shipped_levels
    with Jail(pure, TASK_JOB) as first, Jail(numeric, TASK_JOB) as second:
        yield {"pure": first, "numeric": second}


@pytest.mark.parametrize("path", PROGRAMS, ids=lambda path: path.stem)
def test_program_gives_the_same_in_the_jail(jails, runtimes, path):
    source = path.read_text(encoding="utf-8")
    level = "numeric" if "numpy" in source else "pure"
    request = TaskRequest(source, "run", skeleton.encode(ARGUMENTS), now=1_700_000_000)
    limits = runtimes[level].level.default_limits()
    outcome = run_task(jails[level], request, limits)
    assert outcome.status is RunStatus.OK, outcome
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        buffer = TextBuffer()
        frame = run_call(runtimes[level], request.encode(), buffer)
    assert outcome.value == frame["value"]
    assert outcome.output == buffer.text
