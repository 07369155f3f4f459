"""The kernels of rays and kept states compute in the jail what they compute here."""

import copy

import numpy as np
import pytest
import torch
from torch import nn

from stoilo.client.capture import capture_task
from stoilo.core.codec.skeleton import decode
from stoilo.core.codec.values import from_node
from stoilo.core.types import RunStatus
from stoilo.learn.kernels import array_models, torch_models
from stoilo.learn.kernels.checks import are_alike
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


LOCAL = {"steps": 4, "batch": 3, "rate": 0.01, "momentum": 0.9, "seed": 4, "made": 5}
ORDERS = [
    ("ray", 2, {"seed": 1, "ray": [0.0, 0.25, 1.0]}),
    ("local_steps", 2, {**LOCAL, "give": "parameters", "keep": True}),
    (
        "local_steps",
        3,
        {**LOCAL, "give": "parameters", "keep": True, "optimizer": "adamw"},
    ),
]


def arguments(rows, settings):
    rng = np.random.default_rng(0)
    shapes = {"weight": (rows, 1, 4), "bias": (rows, 1)}
    return {
        "parameters": {n: rng.uniform(0.1, 1.0, shape) for n, shape in shapes.items()},
        "buffers": {},
        "data": {"x": rng.normal(size=(8, 4)), "y": rng.normal(size=(8, 1))},
        "rows": None,
        "settings": settings,
        "version": 3,
    }


def of_torch(rows, settings):
    with torch.random.fork_rng():
        model = nn.Linear(4, 1).double()
    fixed = {"model": model, "loss": sum_of_squares, "reduction": "sum"}
    return {**arguments(rows, settings), **fixed}


def of_arrays(rows, settings):
    return {**arguments(rows, settings), "function": squares}


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


@pytest.mark.parametrize(("name", "rows", "settings"), ORDERS)
def test_jailed_kernel_answers_as_the_same_here(jailed, name, rows, settings):
    level, run = jailed
    module, make = (
        (array_models, of_arrays) if level == "numeric" else (torch_models, of_torch)
    )
    given = make(rows, settings)
    here = getattr(module, name)(copy.deepcopy(given))
    there = run(getattr(module, name), given)
    assert there["numbers"] == pytest.approx(here["numbers"], rel=1e-9)
    assert len(there["numbers"]) == (6 if name == "ray" else 0)
    assert set(there["tensors"]) == set(here["tensors"])
    for key, array in here["tensors"].items():
        assert there["tensors"][key].shape == array.shape
        np.testing.assert_allclose(there["tensors"][key], array, rtol=1e-9)


def test_slopes_of_a_ray_are_the_losses_differences():
    steps = [0.5 - 1e-6, 0.5, 0.5 + 1e-6]
    numbers = array_models.ray(of_arrays(2, {"ray": steps}))["numbers"]
    slope = (numbers["loss2"] - numbers["loss0"]) / 2e-6
    assert numbers["slope1"] == pytest.approx(slope, rel=1e-6)
    assert numbers == pytest.approx(
        torch_models.ray(of_torch(2, {"ray": steps}))["numbers"]
    )


@pytest.mark.parametrize(("factor", "wanted"), [(1 + 1e-9, True), (1.01, False)])
def test_copies_of_a_ray_are_alike_but_for_rounding(factor, wanted):
    one = array_models.ray(of_arrays(2, {"ray": [0.0, 0.5]}))
    other = {**one, "numbers": {n: factor * x for n, x in one["numbers"].items()}}
    assert are_alike(one, other) is wanted
    assert not are_alike(one, {**one, "numbers": {}})
