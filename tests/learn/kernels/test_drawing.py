"""Kernels that draw: the same from the same seed, in threads, in the jail; nothing left."""

import copy
import functools
import time

import numpy as np
import pytest
import torch
from torch import nn

from stoilo.client.capture import capture_task
from stoilo.core.codec import skeleton
from stoilo.core.codec.nodes import from_node
from stoilo.core.types import RunStatus
from stoilo.learn.backends import Job
from stoilo.learn.backends.local import LocalBackend
from stoilo.learn.core.models import TorchModel
from stoilo.learn.kernels import torch_models
from stoilo.policies.levels import load_level
from stoilo.sandbox.process.channel import TASK_JOB, TaskRequest
from stoilo.sandbox.process.run import run_task
from stoilo.sandbox.process.supervisor import Jail

LOSS = nn.functional.cross_entropy


@functools.cache
def make_model(width=16):
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        layers = nn.Linear(4, width), nn.Dropout(0.5), nn.Linear(width, 3)
    return TorchModel(nn.Sequential(*layers), LOSS)


def arguments(seed, model=None):
    model = model or make_model()
    rng, first = np.random.default_rng(0), model.first()
    x, y = rng.normal(size=(40, 4)).astype(np.float32), np.arange(40) % 3
    return {
        **model.constants(),
        "parameters": first.parameters,
        "buffers": first.buffers,
        "data": {"x": x, "y": y},
        "rows": None,
        "settings": {"seed": seed},
        "version": 0,
    }


def draw(seed):
    return torch_models.gradient(copy.deepcopy(arguments(seed)))["tensors"]["0.weight"]


def test_seed_decides_what_dropout_drops():
    assert (draw(5) == draw(5)).all()
    assert (draw(5) != draw(6)).any()


def test_caller_draws_as_if_no_kernel_had_run():
    torch.manual_seed(1)
    wanted = torch.rand(3)
    torch.manual_seed(1)
    draw(5)
    assert torch.equal(torch.rand(3), wanted)


class Inside:
    """How many are at work at once; a loss that lingers shows it."""

    now, most = 0, 0

    @classmethod
    def loss(cls, output, y):
        cls.now += 1
        cls.most = max(cls.most, cls.now)
        time.sleep(0.01)
        cls.now -= 1
        return LOSS(output, y)


async def test_threads_draw_one_after_the_other():
    async with LocalBackend(workers=4) as backend:
        for seed in range(12):
            given = {**arguments(seed), "loss": Inside.loss}
            await backend.submit(
                Job(str(seed), torch_models.gradient, given, 40, "tensor")
            )
        endings = [await backend.next() for _ in range(12)]
    assert Inside.most == 1
    for ending in endings:
        found = ending.value["tensors"]["0.weight"]
        assert np.allclose(found, draw(int(ending.job_id)), atol=1e-6)


def count_threads(kwargs):
    return {**torch_models.gradient(kwargs), "threads": torch.get_num_threads()}


@pytest.mark.slow
def test_jail_draws_the_same_with_one_thread():
    task = capture_task(count_threads, arguments(5), None, None)
    request = TaskRequest(task.task_module, task.entry, task.arguments, task.blobs)
    level = load_level("tensor")
    jail = Jail(level, TASK_JOB)
    try:
        outcome = run_task(jail, request, level.default_limits())
    finally:
        jail.close()
    assert outcome.status is RunStatus.OK, outcome.error
    answer = from_node(skeleton.decode(outcome.value))
    assert answer["threads"] == 1
    assert np.allclose(answer["tensors"]["0.weight"], draw(5), atol=1e-5)


@pytest.mark.parametrize("seed", [0, 2**63 - 1])
def test_any_derived_seed_is_one_for_torch(seed):
    assert np.isfinite(draw(seed)).all()


def test_constants_are_as_large_for_a_model_a_hundred_times_as_large():
    sizes = []
    for width in (8, 800):
        given = arguments(5, make_model(width)) | {"parameters": {}}
        task = capture_task(torch_models.gradient, given, None, None)
        sizes.append(len(task.arguments) + sum(map(len, task.blobs)))
    assert abs(sizes[1] - sizes[0]) < 64
