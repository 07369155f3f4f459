"""Kernels: torch's and numpy's agree, and the gate admits both at their levels."""

import numpy as np
import pytest
import torch
from torch import nn

from stoilo.client.capture import capture_task
from stoilo.learn.kernels import array_models, torch_models
from stoilo.policies.gate import GateRequest, judge


def squares(parameters, x, y):
    rest = x @ parameters["weight"].T + parameters["bias"] - y
    return float((rest**2).sum()), {"weight": 2 * rest.T @ x, "bias": 2 * rest.sum(0)}


def sum_of_squares(output, y):
    return ((output - y) ** 2).sum()


LOCAL = {"steps": 5, "batch": 3, "rate": 0.01, "momentum": 0.9, "seed": 4}
SETTINGS = {
    "gradient": {},
    "local_steps": LOCAL,
    "local_steps, adamw": {**LOCAL, "optimizer": "adamw"},
    "local_steps, sum": {**LOCAL, "give": "sum"},
    "local_steps, proximal": {**LOCAL, "proximal": 2.0},
    "local_steps, whole part": {**LOCAL, "batch": 0},
}


def arguments(settings, rows=None):
    rng = np.random.default_rng(0)
    return {
        "parameters": {"weight": rng.normal(size=(1, 4)), "bias": rng.normal(size=1)},
        "buffers": {},
        "data": {"x": rng.normal(size=(8, 4)), "y": rng.normal(size=(8, 1))},
        "rows": rows,
        "settings": settings,
        "version": 3,
    }


@pytest.mark.parametrize("rows", [None, [0, 5, 2]])
@pytest.mark.parametrize("name", SETTINGS)
def test_torch_and_numpy_kernels_agree(name, rows):
    kernel, given = name.partition(",")[0], arguments(SETTINGS[name], rows)
    torch_only = {
        "model": nn.Linear(4, 1).double(),
        "loss": sum_of_squares,
        "reduction": "sum",
    }
    one = getattr(array_models, kernel)({**given, "function": squares})
    other = getattr(torch_models, kernel)({**given, **torch_only})
    assert one["samples"] == other["samples"]
    assert one["loss_sum"] == pytest.approx(other["loss_sum"])
    for key, array in one["tensors"].items():
        np.testing.assert_allclose(array, other["tensors"][key], rtol=1e-9, atol=1e-12)


def test_gradient_is_the_sum_over_samples():
    given = {**arguments({}), "function": squares}
    whole = array_models.gradient(given)["tensors"]["weight"]
    parts = [
        array_models.gradient({**given, "rows": [row]})["tensors"]["weight"]
        for row in range(8)
    ]
    np.testing.assert_allclose(whole, sum(parts), rtol=1e-12)


def test_evaluation_sends_no_arrays_and_counts_what_was_right():
    given = arguments({}) | {"model": nn.Linear(4, 3).double(), "reduction": "mean"}
    given["data"]["y"] = np.arange(8) % 3
    parameters = dict(given["model"].named_parameters())
    given["parameters"] = {n: p.detach().numpy() for n, p in parameters.items()}
    found = torch_models.evaluate({**given, "loss": nn.functional.cross_entropy})
    right = given["model"](torch.tensor(given["data"]["x"])).argmax(1).numpy()
    assert found["tensors"] == {}
    assert found["correct"] == (right == given["data"]["y"]).sum()


@pytest.mark.parametrize("name", array_models.__all__)
def test_gate_admits_every_kernel_at_its_level(name):
    plain = {**arguments(LOCAL), "function": squares}
    model = {
        "model": nn.Linear(4, 1),
        "loss": nn.functional.mse_loss,
        "reduction": "mean",
    }
    for module, level, given in (
        (array_models, "numeric", plain),
        (torch_models, "tensor", {**arguments(LOCAL), **model}),
    ):
        task = capture_task(getattr(module, name), given, None, None)
        verdict = judge(GateRequest(task.task_module.encode(), entry=task.entry))
        assert verdict.admitted, verdict.findings
        assert verdict.lowest_level == level
