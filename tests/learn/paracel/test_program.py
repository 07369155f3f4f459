"""Programs: the gate lets their kernels pass, places agree, a killed run goes on, lies end."""

from dataclasses import replace

import numpy as np
import pytest

from stoilo.client.capture import capture_task
from stoilo.client.capture.modules import capture_calls
from stoilo.core.codec import skeleton
from stoilo.core.codec.nodes import from_node
from stoilo.core.errors import UsageError
from stoilo.core.types import RunStatus
from stoilo.learn.core.orders import Reply
from stoilo.learn.driver.in_flight import Flights
from stoilo.learn.kernels import array_models, programs
from stoilo.learn.paracel.clusters import (
    best_lines,
    kmeans,
    pagerank,
    similarity,
    word_count,
)
from stoilo.learn.paracel.factors import (
    alternating,
    biased_factors,
    conjugate_factors,
    tall_svd,
)
from stoilo.learn.paracel.linear import (
    conjugate_ridge,
    consensus_lasso,
    lasso,
    sparse_logistic,
)
from stoilo.learn.paracel.program import train
from stoilo.learn.paracel.rounds import find_far
from stoilo.learn.paracel.topics import find_topics
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


def begun(program, **arrays):
    """The program in the midst of its rounds."""
    start = {name: np.full(1, value) for name, value in arrays.items()}
    return replace(program, start={**program.start, **start})


PROGRAMS = [
    (lasso(4, 0.1), False),
    (sparse_logistic(4, 1.0, 1), False),
    (conjugate_ridge(4, 1.0), False),
    (kmeans(np.eye(4)), False),
    (tall_svd(4), False),
    (word_count(9), True),
    (pagerank(9), True),
    (alternating(np.ones((9, 2)), np.ones((9, 2)), 1.0), True),
    (consensus_lasso(4, 0.1), False),
    (best_lines(np.ones(4), 3), False),
    (similarity(9, sparse=True), True),
    (conjugate_factors(np.ones((9, 2)), np.ones((9, 2)), 1.0), True),
    (begun(biased_factors(np.ones((9, 2)), np.ones((9, 2))), round=1.0), True),
    (begun(find_topics(2, 9, 3), sweep=1.0), True),
]


@pytest.mark.slow
@pytest.mark.parametrize(("program", "whole"), PROGRAMS)
def test_jail_runs_every_kernel_as_here(program, whole):
    rng = np.random.default_rng(0)
    x = rng.integers(0, 9, (8, 2)) if whole else rng.standard_normal((8, 4))
    model, data = program.model(), {"x": x, "y": rng.integers(0, 2, 8) * 1.0}
    own = program.own(0, 8)
    own |= {n: a + 1.0 for n, a in own.items() if n == "labels"}
    call = {"parameters": model.parameters, "buffers": {}, "data": data, "rows": None}
    call |= {"own": own} if own else {}
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
    wanted = program.kernel({**model.parameters, **own}, x, data["y"])[1]
    assert any(array.any() for array in wanted.values())
    for name, want in wanted.items():
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
    loss, sums = program.kernel(order.arrays, x, y)
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


@pytest.mark.parametrize("staleness", [0, 2])
def test_labels_that_travel_are_saved_and_go_on_to_the_same_bits(staleness):
    x = np.random.default_rng(0).integers(-1, 9, (20, 7))
    parts, program = [(x[:5], x[:5]), (x[5:], x[5:])], find_topics(7, 9, 3, sweeps=5)
    first = program.model().first()
    whole, half, again = (program.method(first, [5, 15], staleness) for _ in range(3))
    drive(whole, program, parts, 4)
    again.load(drive(half, program, parts, 2).save())
    drive(again, program, parts, 2)
    ended, midway, resumed = (
        one.snapshot.parameters["counts"] for one in (whole, half, again)
    )
    assert resumed.tobytes() == ended.tobytes() != midway.tobytes()


def test_arrays_of_a_part_are_saved_with_its_order_in_flight():
    program, flights, again = find_topics(7, 9, 3), Flights(), Flights()
    (order,) = program.method(program.model().first(), [5, 15]).next_orders(1)
    order.own["labels"][0] = 2.0
    flights.add(order)
    again.load(flights.save())
    (loaded,) = again.all()
    assert loaded.order.own["labels"].tolist() == order.own["labels"].tolist()
    assert loaded.order.own["part"].tolist() == [order.part]


def rounds_of(program, parts, lies, rounds=3, staleness=0):
    """Run a method by hand; `lies` says what a liar makes of the answer to an order."""
    method = program.method(
        program.model().first(), [len(x) for x, _ in parts], staleness
    )
    asked = []
    while not method.finished and len(asked) < 20 * rounds:
        for order in method.next_orders(9):
            asked.append((order.key, order.settings.get("again", 0)))
            reply = answer(order, program, parts)
            factor = lies(order)
            lie = {name: factor * array for name, array in reply.tensors.items()}
            method.take(order, replace(reply, tensors=lie) if factor != 1 else reply)
    return method.snapshot.parameters, asked


def four_parts():
    x, y = problem()
    return [(x[k::4], y[k::4]) for k in range(4)]


def test_honest_answers_are_asked_for_once():
    _, asked = rounds_of(conjugate_ridge(4, 1.0), four_parts(), lambda _: 1.0)
    assert len(asked) == 4 * 5
    assert not any(again for _, again in asked)


def test_lie_that_is_told_once_is_asked_for_again_and_changes_nothing():
    program, parts = conjugate_ridge(4, 1.0), four_parts()
    honest, _ = rounds_of(program, parts, lambda _: 1.0)

    def once(order):
        return 1e6 if order.part == 1 and "again" not in order.settings else 1.0

    found, asked = rounds_of(program, parts, once)
    assert np.array_equal(found["theta"], honest["theta"])
    assert sum(again == 1 for _, again in asked) == 5


def test_far_answer_that_a_second_one_confirms_counts_in_full():
    parts = four_parts()
    parts[2] = (100.0 * parts[2][0], parts[2][1])  # an honest part of other data
    program = lasso(4, 0.1)
    found, asked = rounds_of(program, parts, lambda _: 1.0)
    x, y = (np.concatenate(arrays) for arrays in zip(*parts, strict=True))
    whole = program.step(program.start, program.kernel(program.start, x, y)[1])
    assert np.allclose(found["theta"], whole["theta"], atol=1e-12)
    assert [key for key, again in asked if again] == ["e0/s0/p2"]


def test_control_small_lie_is_not_seen_and_bounded_by_the_usual_size():
    program, parts = lasso(4, 0.1), four_parts()
    _, asked = rounds_of(program, parts, lambda order: 2.0 if order.part == 1 else 1.0)
    assert not any(again for _, again in asked)


def test_part_that_is_rounds_apart_must_confirm_a_lie_as_well():
    program, parts = consensus_lasso(4, 0.1, 60), four_parts()

    def once(order):
        return 1e6 if order.key == "w1/i30" and "again" not in order.settings else 1.0

    found, asked = rounds_of(program, parts, once, 60, staleness=2)
    honest, _ = rounds_of(program, parts, lambda _: 1.0, 60, staleness=2)
    assert [key for key, again in asked if again] == ["w1/i30"]
    assert np.abs(found["theta"] - honest["theta"]).max() < 1e-6


def test_answers_of_few_samples_may_be_longer_by_the_sample():
    def reply(samples, size):
        return Reply(0, samples, 0.0, {"w": np.full(1, float(size))})

    usual = {"a": reply(100, 100), "b": reply(100, 90), "c": reply(100, 110)}
    assert find_far({**usual, "d": reply(2, 250)}) == set()
    assert find_far({**usual, "d": reply(2, 350)}) == {"d"}
    assert find_far({"a": reply(9, 1), "d": reply(9, 1e9)}) == set()


async def test_answer_that_cannot_be_is_ordered_again():
    x = np.random.default_rng(0).integers(0, 9, (20, 7))
    program = find_topics(7, 9, 3, sweeps=2)
    parts = [(x[:10], x[:10]), (x[10:], x[10:])]
    found, asked = rounds_of(
        program, parts, lambda o: 1.0 if "again" in o.settings else -1.0
    )
    assert found["counts"].sum() == 140
    assert sum(again == 1 for _, again in asked) == 6


@pytest.mark.parametrize("staleness", [1, None])
def test_program_that_needs_whole_rounds_refuses_staleness(staleness):
    program = conjugate_ridge(4, 1.0)
    with pytest.raises(UsageError, match="STO-T040"):
        program.method(program.model().first(), [3, 3], staleness)


@pytest.mark.parametrize("staleness", [1, 3])
def test_parts_are_never_farther_ahead_than_they_may(staleness):
    program, rng, lead = pagerank(9, 30), np.random.default_rng(0), 0
    links = np.random.default_rng(1).integers(0, 9, (40, 2))
    parts = [(links[k::4], np.ones(10)) for k in range(4)]
    method = program.method(program.model().first(), [10] * 4, staleness)
    out = []
    while not method.finished:
        out += method.next_orders(4 - len(out))
        order = out.pop(rng.integers(len(out)) if rng.random() < 0.3 else -1)
        method.take(order, answer(order, program, parts))
        lead = max(lead, method.clock.lead)
    assert 1 < lead <= staleness + 1


async def test_a_researcher_trains_parts_that_are_rounds_apart():
    x = np.vstack([np.zeros((50, 2)), np.ones((50, 2))])
    program = kmeans(np.array([[0.1, 0.0], [0.7, 1.0]]), 4)
    options = TrainerOptions(tasks=3)
    found = await train(None, (x, np.zeros(100)), program, staleness=2, options=options)
    assert found["centres"].tolist() == [[0.0, 0.0], [1.0, 1.0]]


async def test_a_researcher_trains_with_one_call():
    x = np.vstack([np.zeros((50, 2)), np.ones((50, 2))])
    program = kmeans(np.array([[0.1, 0.0], [0.7, 1.0]]), 2)
    options = TrainerOptions(tasks=3)
    found = await train(None, (x, np.zeros(100)), program, options=options)
    assert found["centres"].tolist() == [[0.0, 0.0], [1.0, 1.0]]
