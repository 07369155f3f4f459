"""Modules and optimisers: captured source and cloudpickle must compute the same."""

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
from stoilo.core.codec.skeleton import decode, encode
from stoilo.core.types import RunStatus
from stoilo.policies.gate import GateRequest, judge
from stoilo.policies.levels import find_argument_types, load_level
from stoilo.sandbox.process.channel import TASK_JOB, TaskRequest
from stoilo.sandbox.process.run import run_task
from stoilo.sandbox.process.supervisor import Jail

PROGRAM = Path(__file__).parent / "programs" / "models.py"


def load_models(cache: Path) -> ModuleType:
    """Import the program; the compiler that optimisers bring keeps its folder in `cache`."""
    spec = importlib.util.spec_from_file_location("models", PROGRAM)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules["models"] = module
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("TORCHINDUCTOR_CACHE_DIR", str(cache))
        spec.loader.exec_module(module)
    cloudpickle.register_pickle_by_value(module)
    return module


@pytest.fixture(scope="module")
def cases(tmp_path_factory: pytest.TempPathFactory) -> dict[str, tuple[Any, Any]]:
    module = load_models(tmp_path_factory.mktemp("inductor"))
    return {name: (func, kwargs) for name, func, kwargs in module.CASES}


@pytest.fixture(scope="module")
def tensor_jail():
    with Jail(load_level("tensor"), TASK_JOB) as jail:
        yield jail


NAMES = (
    *("own module", "derived module", "frozen weight", "private lists", "names"),
    *("tied weights", "library module", "momentum", "global module", "gradients"),
    "kinds",
)


def test_every_case_has_its_test(cases: dict[str, Any]) -> None:
    assert sorted(cases) == sorted(NAMES)


@pytest.mark.parametrize("name", NAMES)
def test_captured_module_computes_what_cloudpickles_does(
    name: str, cases: dict[str, Any], tensor_jail: Jail
) -> None:
    func, kwargs = cases[name]
    task = capture_task(func, kwargs)
    request = TaskRequest(task.task_module, task.entry, task.arguments, task.blobs)
    outcome = run_task(tensor_jail, request, load_level("tensor").default_limits())
    assert outcome.status is RunStatus.OK, f"{outcome}\n{task.task_module}"
    copied, arguments = cloudpickle.loads(cloudpickle.dumps((func, kwargs)))
    assert outcome.value == encode(to_node(copied(arguments)))


def test_gate_admits_them_at_tensor_and_not_below(cases: dict[str, Any]) -> None:
    for func, kwargs in cases.values():
        task = capture_task(func, kwargs)
        held = find_argument_types(decode(task.arguments))
        request = GateRequest(
            task.task_module.encode(), entry=task.entry, argument_types=held
        )
        verdict = judge(request)
        assert (verdict.admitted, verdict.lowest_level) == (True, "tensor")
