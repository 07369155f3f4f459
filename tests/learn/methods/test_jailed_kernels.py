"""The kernels of rays and kept states compute in the jail what they compute here."""

import copy

import numpy as np
import pytest
import torch
from torch import nn

from stoilo.client.capture import capture_task
from stoilo.core.codec.nodes import from_node
from stoilo.core.codec.skeleton import decode
from stoilo.core.types import RunStatus
from stoilo.learn.kernels import array_models, torch_models
from stoilo.policies.levels import load_level
from stoilo.sandbox.process.channel import TASK_JOB, TaskRequest
from stoilo.sandbox.process.run import run_task
from stoilo.sandbox.process.supervisor import Jail

pytestmark = pytest.mark.slow


def squares(parameters, x, y):
    rest = x @ parameters["weight"].T + parameters["bias"] - y
    return float((rest**2).sum()), {"weight": 2 * rest.T @ x, "bias": 2 * rest.sum(0)}


def sum_of_squares(output, y):
    return ((output - y) ** 2).sum()


LOCAL = {"steps": 4, "batch": 3, "rate": 0.01, "momentum": 0.9, "seed": 4}
ORDERS = [
    ("gradient", {"seed": 1}),
    ("local_steps", {**LOCAL, "give": "parameters"}),
    ("local_steps", {**LOCAL, "give": "parameters", "optimizer": "adamw"}),
]


def arguments(settings):
    rng = np.random.default_rng(0)
    shapes = {"weight": (1, 4), "bias": (1,)}
    return {
        "parameters": {n: rng.uniform(0.1, 1.0, shape) for n, shape in shapes.items()},
        "buffers": {},
        "data": {"x": rng.normal(size=(8, 4)), "y": rng.normal(size=(8, 1))},
        "rows": None,
        "settings": settings,
        "version": 3,
    }


def of_torch(settings):
    with torch.random.fork_rng():
        model = nn.Linear(4, 1).double()
    fixed = {"model": model, "loss": sum_of_squares, "reduction": "sum"}
    return {**arguments(settings), **fixed}


def of_arrays(settings):
    return {**arguments(settings), "function": squares}


@pytest.fixture(scope="module", params=["numeric", "tensor"])
def jailed(request):
    level = load_level(request.param)
    with Jail(level, TASK_JOB) as jail:

        def run(kernel, given):
            task = capture_task(kernel, given)
            source = task.task_module
            wanted = TaskRequest(source, task.entry, task.arguments, blobs=task.blobs)
            outcome = run_task(jail, wanted, level.default_limits())
            assert outcome.status is RunStatus.OK, outcome.error
            return from_node(decode(outcome.value))

        yield request.param, run


@pytest.mark.parametrize(("name", "settings"), ORDERS)
def test_jailed_kernel_answers_as_the_same_here(jailed, name, settings):
    level, run = jailed
    module, make = (
        (array_models, of_arrays) if level == "numeric" else (torch_models, of_torch)
    )
    given = make(settings)
    here = getattr(module, name)(copy.deepcopy(given))
    there = run(getattr(module, name), given)
    assert set(there["tensors"]) == set(here["tensors"])
    for key, array in here["tensors"].items():
        assert there["tensors"][key].shape == array.shape
        np.testing.assert_allclose(there["tensors"][key], array, rtol=1e-9)


@pytest.mark.parametrize("jailed", ["tensor"], indirect=True)
def test_jailed_forward_pass_in_bfloat16_is_near_that_of_here(jailed):
    """Near: this process may use other kernels of torch (oneDNN)."""
    given = {**of_torch({"seed": 1}), "model": nn.Linear(4, 1), "autocast": True}
    data = {n: a.astype(np.float32) for n, a in given["data"].items()}
    parameters = {n: a.astype(np.float32) for n, a in given["parameters"].items()}
    given |= {"data": data, "parameters": parameters}
    there = jailed[1](torch_models.gradient, given)
    whole = torch_models.gradient({**copy.deepcopy(given), "autocast": False})
    for key, array in whole["tensors"].items():
        gap = np.linalg.norm(there["tensors"][key] - array) / np.linalg.norm(array)
        assert 1e-5 < gap < 3e-2
