"""Captured source and cloudpickle must compute the same, the former in the jail."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import cloudpickle
import pytest

from stoilo.client.capture import capture_task
from stoilo.core.codec.nodes import to_node
from stoilo.core.codec.skeleton import decode, nodes_equal
from stoilo.core.types import RunOutcome, RunStatus
from stoilo.policies.gate import GateRequest, judge
from stoilo.policies.levels import load_level
from stoilo.sandbox.process.channel import TaskRequest
from stoilo.sandbox.process.run import run_task
from stoilo.sandbox.process.supervisor import Jail

PROGRAMS = Path(__file__).parent / "programs"
LEVEL = "numeric"
NAMES = ("own_library", "plain", "library", "stateful", "numeric", "hooks")


def load_program(name: str) -> ModuleType:
    """Import a program by path under a name of its own, once."""
    if name not in sys.modules:
        spec = importlib.util.spec_from_file_location(name, PROGRAMS / f"{name}.py")
        assert spec is not None
        assert spec.loader is not None
        module = importlib.util.module_from_spec(spec)
        sys.modules[name] = module
        spec.loader.exec_module(module)
    return sys.modules[name]


MODULES = [load_program(name) for name in NAMES]
for program in MODULES:
    cloudpickle.register_pickle_by_value(program)

ROWS = [
    pytest.param(row, id=f"{module.__name__}-{row[0]}")
    for module in MODULES[1:]
    for row in [*module.CASES, *module.STATEFUL]
]


def oracle(func: Any, kwargs: dict[str, Any]) -> tuple[str, Any]:
    """Return what cloudpickle's copy of the call gives."""
    copied, arguments = cloudpickle.loads(cloudpickle.dumps((func, kwargs)))
    try:
        return "value", copied(arguments)
    except ValueError as error:
        return "error", f"{type(error).__name__}: {error}"


def run_captured(func: Any, kwargs: dict[str, Any], jail: Jail) -> RunOutcome:
    """Capture, pass the gate, run in the jail: the way of a task without a server."""
    captured = capture_task(func, kwargs)
    source = captured.task_module
    verdict = judge(GateRequest(source.encode(), entry=captured.entry, level=LEVEL))
    assert verdict.admitted, f"{verdict.findings}\n{source}"
    blobs = tuple(blob for blob in captured.blobs if isinstance(blob, bytes))
    request = TaskRequest(source, captured.entry, captured.arguments, blobs)
    return run_task(jail, request, load_level(LEVEL).default_limits())


@pytest.mark.parametrize("row", ROWS)
def test_captured_call_gives_what_cloudpickle_gives(
    row: tuple[str, Any, dict[str, Any]], numeric_jail: Jail
) -> None:
    _, func, kwargs = row
    outcome = run_captured(func, kwargs, numeric_jail)
    kind, expected = oracle(func, kwargs)
    if kind == "error":
        assert outcome.status is RunStatus.USER_ERROR
        assert expected in outcome.error
        return
    assert outcome.status is RunStatus.OK, outcome
    assert outcome.value is not None
    assert nodes_equal(decode(outcome.value), to_node(expected)), outcome


def test_functions_that_share_a_cell_still_share_it(numeric_jail: Jail) -> None:
    ((_, func, kwargs, expected),) = load_program("stateful").KNOWN
    outcome = run_captured(func, kwargs, numeric_jail)
    assert outcome.value is not None
    assert decode(outcome.value) == expected


def test_there_are_sixty_functions_and_twenty_with_state() -> None:
    stateful = sum(len(module.STATEFUL) for module in MODULES[1:])
    assert len(ROWS) >= 60
    assert stateful >= 20


@pytest.mark.parametrize("row", ROWS)
def test_capturing_twice_gives_the_same_bytes(
    row: tuple[str, Any, dict[str, Any]],
) -> None:
    _, func, kwargs = row
    assert capture_task(func, kwargs) == capture_task(func, kwargs)


def test_a_wrong_capture_would_be_noticed(numeric_jail: Jail) -> None:
    outcome = run_captured(lambda kw: kw["a"] + 1, {"a": 1}, numeric_jail)
    assert outcome.value is not None
    assert not nodes_equal(decode(outcome.value), to_node(3))
