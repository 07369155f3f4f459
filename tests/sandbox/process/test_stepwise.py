"""Tasks that yield states: the same answer interrupted or not, wherever they run."""

import functools

import pytest

from stoilo.core.codec import skeleton
from stoilo.policies.levels import load_level
from stoilo.sandbox.process.channel import TASK_JOB, TaskRequest, parse_progress
from stoilo.sandbox.process.report import read_outcome
from stoilo.sandbox.process.run import run_task
from stoilo.sandbox.process.supervisor import Jail

PURE = """
import random, time
def run(d, state=None):
    done, drawn = state or (0, [])
    while done < 4:
        own = random.Random()
        drawn = [*drawn, random.random(), own.random(), time.perf_counter()]
        done += 1
        yield done, drawn
    return [*drawn, random.random()]
"""
NUMERIC = """
import numpy as np
def run(d, state=None):
    state = state or {"done": 0, "w": np.zeros(3)}
    while state["done"] < 4:
        noise = np.random.rand(3) + np.random.default_rng().random(3)
        state = {"done": state["done"] + 1, "w": state["w"] * 0.5 + noise}
        state["fraction_done"] = state["done"] / 4
        yield state
    return state["w"] + np.random.rand(3)
"""
FORGETS = """
import random
def run(d, state=None):
    total = 0.0
    for done in range(state or 0, 4):
        total += random.random()
        yield done + 1
    return total
"""


def told(layer, source, **changes):
    """Return the frame of a run and everything that it told."""
    frames = []
    wrapped = functools.partial(layer.call, source, tell_ms=0, **changes)
    frame, _ = wrapped(tell=frames.append)
    return frame, [parse_progress(one) for one in frames]


@pytest.fixture(params=["pure", "numeric"])
def layer(request, language, numeric_language):
    if request.param == "pure":
        return language, PURE
    return numeric_language, NUMERIC


def test_interrupted_run_gives_the_answer_of_the_uninterrupted_one(layer):
    language, source = layer
    whole, steps = told(language, source)
    assert [one.step for one in steps] == [1, 2, 3, 4]
    for one in steps:
        resumed, later = told(language, source, step=one.step, state=one.state)
        assert resumed == whole
        assert later == steps[one.step :]


def test_telling_nobody_changes_no_answer(layer):
    language, source = layer
    assert language.call(source)[0] == told(language, source)[0]


def test_comparison_would_notice_what_is_kept_outside_of_the_state(language):
    whole, steps = told(language, FORGETS)
    resumed, _ = told(language, FORGETS, step=2, state=steps[1].state)
    assert resumed["value"] != whole["value"]


def test_steps_draw_from_streams_of_their_own(language):
    drawn = language.value(PURE)
    assert len(set(drawn)) == len(drawn)


def test_stopwatch_goes_on_from_step_to_step(language):
    readings = language.value(PURE)[2:-1:3]
    assert readings == sorted(readings)


def test_fraction_is_what_the_state_says(numeric_language):
    _, steps = told(numeric_language, NUMERIC)
    assert [one.fraction for one in steps] == [0.25, 0.5, 0.75, 1.0]


@pytest.mark.parametrize(
    ("value", "fraction"),
    [("7", 1.0), ("-1.0", 0.0), ("1", 1.0), ("'a'", None), ("float('nan')", None)],
)
def test_fraction_is_bounded(language, value, fraction):
    source = f"def run(d, state=None):\n    yield {{'fraction_done': {value}}}"
    assert told(language, source)[1][0].fraction == fraction


def test_state_that_does_not_travel_ends_every_copy_alike(language):
    source = "def run(d, state=None):\n    yield run\n    return 1"
    silent, heard = language.call(source)[0], told(language, source)[0]
    assert (silent["status"], silent["layer"]) == ("user_error", "result")
    assert silent == heard


def test_exception_between_states_is_the_tasks(language):
    source = "def run(d, state=None):\n    yield 1\n    raise ValueError('late')"
    frame, steps = told(language, source)
    assert (frame["error_type"], len(steps)) == ("ValueError", 1)


def test_entry_that_takes_no_state_says_so(language):
    frame, _ = language.call("def run(d):\n    yield 1")
    assert frame["error_type"] == "TypeError"
    assert "state" in frame["error_text"]


@pytest.mark.parametrize("state", [b"", b"rubbish", skeleton.encode(1)[:-1]])
def test_unreadable_state_is_told_and_nothing_runs(language, state):
    frame, _ = language.call(PURE, step=2, state=b"x" + state)
    assert (frame["status"], frame["code"]) == ("refused", "STO-G122")


@pytest.mark.parametrize(
    "wrong", [{"step": -1}, {"step": "1"}, {"state": "x"}, {"tell_ms": -2}, {"new": 1}]
)
def test_wrong_optional_field_is_refused(language, wrong):
    assert language.call(PURE, **wrong)[0]["code"] == "STO-G120"


def test_items_run_to_their_ends_and_tell_how_many_are_done(language):
    source = "def run(d, state=None):\n    yield d['x']\n    return d['x'] + 1"
    arguments = skeleton.encode([{"x": 1}, {"x": 2}])
    frame, steps = told(language, source, arguments=arguments, items=2)
    values = [skeleton.decode(one["value"]) for one in frame["items"]]
    assert values == [2, 3]
    assert [(one.step, one.fraction, one.state) for one in steps] == [
        (1, 0.5, None),
        (2, 1.0, None),
    ]


def test_teller_leaves_out_what_comes_too_soon(language):
    frames = []
    frame, _ = language.call(PURE, tell_ms=3_600_000, tell=frames.append)
    assert frame == language.call(PURE)[0]
    assert [parse_progress(one).step for one in frames] == [1]


TENSOR = """
import torch
def run(d, state=None):
    state = state or {"done": 0, "w": torch.zeros(3)}
    while state["done"] < 3:
        noise = torch.rand(3) + torch.randn(3)
        state = {"done": state["done"] + 1, "w": state["w"] * 0.5 + noise}
        yield state
    return state["w"] + torch.rand(3)
"""


def test_tensors_go_on_as_they_were(tensor_jail):
    heard, limits = [], load_level("tensor").default_limits()
    request = TaskRequest(TENSOR, "run", skeleton.encode({}), tell_ms=0)
    report = tensor_jail.run(
        request.encode(), limits, watch=lambda exchange: exchange.hear(heard.append)
    )
    answer = read_outcome(report).value
    assert len(heard) == 3
    for one in heard:
        rest = TaskRequest(
            TENSOR, "run", skeleton.encode({}), step=one.step, state=one.state
        )
        assert run_task(tensor_jail, rest, limits).value == answer


@pytest.fixture(scope="module")
def jail(pure):
    with Jail(pure, TASK_JOB) as made:
        yield made


def test_states_leave_the_jail_and_come_back(jail, pure):
    heard, limits = [], pure.default_limits()
    whole = TaskRequest(PURE, "run", skeleton.encode({}), tell_ms=0)
    report = jail.run(
        whole.encode(), limits, watch=lambda exchange: exchange.hear(heard.append)
    )
    answer = read_outcome(report).value
    assert [one.step for one in heard] == [1, 2, 3, 4]
    for one in heard:
        rest = TaskRequest(
            PURE, "run", skeleton.encode({}), step=one.step, state=one.state
        )
        assert run_task(jail, rest, limits).value == answer


def test_run_that_nobody_hears_tells_nothing(jail, pure):
    request = TaskRequest(PURE, "run", skeleton.encode({}))
    assert run_task(jail, request, pure.default_limits()).status.value == "ok"
