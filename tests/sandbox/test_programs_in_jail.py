"""The same research programs through both layers: nothing must be missing in the jail."""

import dataclasses
import struct
import warnings
from pathlib import Path

import pytest

from stoilo.core import skeleton
from stoilo.core.nodes import Ndarray, NumpyScalar
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


def is_close(one, other):
    """Whether two nodes are the same but for the last bits of floats.

    This process is no zygote: where its arrays lie, and so the order in which vector
    instructions add, depends on what ran before. Equal jails are test_determinism's.
    """
    if isinstance(one, float):
        return one == pytest.approx(other, rel=1e-9, abs=1e-12, nan_ok=True)
    if isinstance(one, list | tuple):
        return len(one) == len(other) and all(map(is_close, one, other))
    if isinstance(one, dict):
        return one.keys() == other.keys() and all(
            is_close(one[key], other[key]) for key in one
        )
    if isinstance(one, Ndarray | NumpyScalar) and one.dtype == "float64":
        alike = dataclasses.replace(one, data=b"") == dataclasses.replace(
            other, data=b""
        )
        return alike and is_close(unpack(one), unpack(other))
    return one == other


def unpack(node):
    data = bytes(node.data)
    return list(struct.unpack(f"<{len(data) // 8}d", data))


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
    if level == "pure":
        assert outcome.value == frame["value"]
    mine, theirs = skeleton.decode(outcome.value), skeleton.decode(frame["value"])
    assert is_close(mine, theirs), (mine, theirs)
    assert outcome.output == buffer.text
