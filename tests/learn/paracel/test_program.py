"""Programs: the gate lets their kernels pass, places agree, a killed run goes on."""

import numpy as np
import pytest

from stoilo.client.capture import capture_task
from stoilo.client.capture.modules import capture_calls
from stoilo.core.codec import skeleton
from stoilo.core.codec.nodes import from_node
from stoilo.core.types import RunStatus
from stoilo.learn.core.orders import Reply
from stoilo.learn.kernels import array_models, programs
from stoilo.learn.paracel.clusters import kmeans, word_count
from stoilo.learn.paracel.factors import alternating, tall_svd
from stoilo.learn.paracel.graphs import pagerank
from stoilo.learn.paracel.linear import conjugate_ridge, lasso, sparse_logistic
from stoilo.learn.paracel.program import train
from stoilo.learn.trainers.options import TrainerOptions
from stoilo.policies.gate import GateRequest, judge
from stoilo.policies.levels import load_level
from stoilo.sandbox.process.channel import TASK_JOB, TaskRequest
from stoilo.sandbox.process.run import run_task
from stoilo.sandbox.process.supervisor import Jail
from tests.learn.paracel.conftest import on_threads, on_workers


@pytest.mark.parametrize("name", programs.__all__)
def test_gate_admits_every_kernel_at_the_level_of_arrays(name):
    call = {"args": [], "kwargs": {}}
    captured = capture_calls(getattr(programs, name), [call], spread=True)
    verdict = judge(GateRequest(captured.task_module.encode(), entry=captured.entry))
    assert verdict.admitted
    assert verdict.lowest_level in {"pure", "numeric"}


PROGRAMS = [
    (lasso(4, 0.1), False),
    (sparse_logistic(4, 1.0, 1), False),
    (conjugate_ridge(4, 1.0), False),
    (kmeans(np.eye(4)), False),
    (tall_svd(4), False),
    (word_count(9), True),
    (pagerank(9), True),
    (alternating(np.ones((9, 2)), np.ones((9, 2)), 1.0), True),
]


@pytest.mark.slow
@pytest.mark.parametrize(("program", "whole"), PROGRAMS)
def test_jail_runs_every_kernel_as_here(program, whole):
    rng = np.random.default_rng(0)
    x = rng.integers(0, 9, (8, 2)) if whole else rng.standard_normal((8, 4))
    model, data = program.model(), {"x": x, "y": rng.integers(0, 2, 8) * 1.0}
    call = {"parameters": model.parameters, "buffers": {}, "data": data, "rows": None}
    call |= {"settings": {}, "version": 0, **model.constants()}
    task = capture_task(array_models.gradient, call, None, None)
    request = TaskRequest(task.task_module, task.entry, task.arguments, task.blobs)
    level = load_level("numeric")
    jail = Jail(level, TASK_JOB)
    try:
        outcome = run_task(jail, request, level.default_limits())
    finally:
        jail.close()
    assert outcome.status is RunStatus.OK, outcome.error
    found = from_node(skeleton.decode(outcome.value))["tensors"]
    for name, want in program.kernel(model.parameters, x, data["y"])[1].items():
        assert np.allclose(found[name], want)


def problem():
    rng = np.random.default_rng(0)
    x = rng.standard_normal((90, 4))
    return x, x @ np.arange(4.0)


@pytest.mark.parametrize("limit", [0, 3, None])
async def test_workers_find_what_tasks_find_whatever_the_limit(limit):
    program = conjugate_ridge(4, 1.0)
    tasks, workers = (
        await on_threads(program, *problem()),
        await on_workers(program, *problem(), limit=limit),
    )
    assert np.abs(tasks["theta"] - workers["theta"]).max() < 1e-12


def answer(order, program, parts):
    x, y = parts[order.part]
    loss, sums = program.kernel(order.snapshot.parameters, x, y)
    return Reply(order.snapshot.version, len(x), loss, sums)


def drive(method, program, parts, rounds):
    for _ in range(rounds):
        for order in method.next_orders(9):
            method.take(order, answer(order, program, parts))
    return method


def test_program_that_is_saved_and_loaded_goes_on_to_the_same_bits():
    x, y = problem()
    parts, program = [(x[:10], y[:10]), (x[10:], y[10:])], conjugate_ridge(4, 1.0)
    first = program.model().first()
    whole = drive(program.method(first, [10, 80]), program, parts, 5)
    half = drive(program.method(first, [10, 80]), program, parts, 2)
    again = program.method(first, [10, 80])
    again.load(half.save())
    drive(again, program, parts, 3)
    found = (one.snapshot.parameters["theta"] for one in (whole, half, again))
    ended, midway, resumed = found
    assert resumed.tobytes() == ended.tobytes() != midway.tobytes()


async def test_a_researcher_trains_with_one_call():
    x = np.vstack([np.zeros((50, 2)), np.ones((50, 2))])
    program = kmeans(np.array([[0.1, 0.0], [0.7, 1.0]]), 2)
    options = TrainerOptions(tasks=3)
    found = await train(None, (x, np.zeros(100)), program, options=options)
    assert found["centres"].tolist() == [[0.0, 0.0], [1.0, 1.0]]
