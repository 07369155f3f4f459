"""Programs: the gate lets their kernels pass, places agree, a killed run goes on."""

import numpy as np
import pytest

from stoilo.client.capture.modules import capture_calls
from stoilo.learn.core.orders import Reply
from stoilo.learn.kernels import programs
from stoilo.learn.paracel.clusters import kmeans
from stoilo.learn.paracel.linear import conjugate_ridge
from stoilo.learn.paracel.program import train
from stoilo.learn.trainers.options import TrainerOptions
from stoilo.policies.gate import GateRequest, judge
from tests.learn.paracel.conftest import on_threads, on_workers


@pytest.mark.parametrize("name", programs.__all__)
def test_gate_admits_every_kernel_at_the_level_of_arrays(name):
    call = {"args": [], "kwargs": {}}
    captured = capture_calls(getattr(programs, name), [call], spread=True)
    verdict = judge(GateRequest(captured.task_module.encode(), entry=captured.entry))
    assert verdict.admitted
    assert verdict.lowest_level in {"pure", "numeric"}


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
