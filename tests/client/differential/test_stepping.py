"""Captured tasks that yield states: admitted, run, and gone on from, as they are written."""

import importlib.util
import sys
from pathlib import Path

import pytest

from stoilo.client.capture import capture_calls, capture_task
from stoilo.core.codec.skeleton import decode
from stoilo.core.errors import UsageError
from stoilo.policies.gate import GateRequest, judge
from stoilo.policies.levels import load_level
from stoilo.sandbox.process.channel import TASK_JOB, TaskRequest
from stoilo.sandbox.process.report import read_outcome
from stoilo.sandbox.process.run import run_task
from stoilo.sandbox.process.supervisor import Jail

PROGRAM = Path(__file__).parent / "programs" / "stepping.py"
SPEC = importlib.util.spec_from_file_location("stepping", PROGRAM)
STEPPING = sys.modules["stepping"] = importlib.util.module_from_spec(SPEC)
SPEC.loader.exec_module(STEPPING)


@pytest.fixture(scope="module")
def jail():
    with Jail(load_level("pure"), TASK_JOB) as made:
        yield made


def resumed_everywhere(jail, captured):
    """Return the answer, after checking that every way of going on gives it too."""
    limits, heard = load_level("pure").default_limits(), []
    fields = (captured.task_module, captured.entry, captured.arguments)
    request = TaskRequest(*fields, captured.blobs, tell_ms=0)
    report = jail.run(
        request.encode(), limits, watch=lambda one: one.hear(heard.append)
    )
    answer = read_outcome(report).value
    assert len(heard) == 3
    for one in heard:
        rest = TaskRequest(*fields, captured.blobs, step=one.step, state=one.state)
        assert run_task(jail, rest, limits).value == answer
    return decode(answer)


@pytest.mark.parametrize("name", ["walk", "scaled"])
def test_captured_task_goes_on_from_each_of_its_states(jail, name):
    captured = capture_task(getattr(STEPPING, name), {"steps": 3})
    source = captured.task_module.encode()
    assert judge(GateRequest(source, entry=captured.entry, level="pure")).admitted
    assert resumed_everywhere(jail, captured)


def test_spread_call_takes_its_state_too(jail):
    calls = [{"args": [1], "kwargs": {"second": 2}}]
    captured = capture_calls(STEPPING.added, calls, spread=True).pack_one()
    assert resumed_everywhere(jail, captured) == 3


def test_generator_that_takes_no_state_is_refused_with_both_ways_out():
    def squares(kwargs):
        yield from range(kwargs["n"])

    with pytest.raises(UsageError, match="STO-C014") as caught:
        capture_task(squares, {"n": 3})
    assert "list(...)" in caught.value.hint
    assert "state=None" in caught.value.hint
