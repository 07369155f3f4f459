"""A source is written once while nothing that it depends on changes; else anew."""

from __future__ import annotations

import functools
import math
import sys
import threading
import types

import numpy as np
import pytest

from stoilo.client.capture import capture_task
from stoilo.client.capture.known import MOST_KEPT, Captures

RATE = 2.0
TABLE = {"a": [1, 2]}
WIDE = np.arange(200.0)
NESTED = ({"names": ["one"]}, math.pi)


def helper(x, scale=3):
    return x * scale * RATE


class Shape:
    sides = 4

    def area(self, x):
        return helper(x) + self.sides


def task(kwargs):
    return helper(kwargs["x"]) + TABLE["a"][0] + Shape().area(1) + len(NESTED[0])


def with_array(kwargs):
    return float(WIDE.sum()) + kwargs["x"]


def with_dead_code(kwargs):
    if False:
        return helper(kwargs["x"])
    return kwargs["x"]


def calls_itself(kwargs):
    return kwargs["x"] if kwargs["x"] < 1 else calls_itself({"x": kwargs["x"] - 1})


def other_helper(x, scale=3):
    return x - scale


CHANGES = {
    "global": lambda patch: patch.setitem(globals(), "RATE", 5.0),
    "sign of zero": lambda patch: patch.setitem(globals(), "RATE", -0.0),
    "type of a number": lambda patch: patch.setitem(globals(), "RATE", 2),
    "inside a dict": lambda patch: patch.setitem(TABLE, "a", [7, 2]),
    "inside a tuple": lambda patch: patch.setitem(NESTED[0], "names", ["two"]),
    "helper": lambda patch: patch.setitem(globals(), "helper", other_helper),
    "helper's code": lambda patch: patch.setattr(
        helper, "__code__", other_helper.__code__
    ),
    "default": lambda patch: patch.setattr(helper, "__defaults__", (4,)),
    "class attribute": lambda patch: patch.setattr(Shape, "sides", 5),
    "new class attribute": lambda patch: patch.setattr(Shape, "corners", 6, False),
    "helper is gone": lambda patch: patch.delitem(globals(), "helper"),
    "no longer the built-in": lambda patch: patch.setitem(
        globals(), "len", other_helper
    ),
}


@pytest.mark.parametrize("change", CHANGES)
def test_change_of_what_is_reached_is_seen(change, monkeypatch):
    captures = Captures()
    before = captures.task(task, {"x": 1})
    CHANGES[change](monkeypatch)
    after = captures.task(task, {"x": 1})
    assert after == capture_task(task, {"x": 1})
    assert after.task_module != before.task_module


def test_unchanged_function_is_written_once():
    captures = Captures()
    made = [captures.task(task, {"x": n}) for n in range(5)]
    assert captures.written == 1
    assert made == [capture_task(task, {"x": n}) for n in range(5)]


Rows = dict[str, list[float] | None]


def with_alias(kwargs: Rows) -> Rows:
    return {"found": kwargs["x"]}


def test_alias_in_a_signature_is_no_reason_to_write_anew():
    captures = Captures()
    first = captures.task(with_alias, {"x": [1.0]})
    assert captures.task(with_alias, {"x": [1.0]}).task_module is first.task_module


def test_change_and_change_back_gives_both_sources(monkeypatch):
    captures = Captures()
    first = captures.task(task, {"x": 1})
    with monkeypatch.context() as patch:
        patch.setitem(globals(), "RATE", 9.0)
        captures.task(task, {"x": 1})
    assert captures.task(task, {"x": 1}) == first
    assert captures.written == 2


@pytest.mark.parametrize("values", [(1, 2), ([1], [2]), (1.0, math.nan), (None, False)])
def test_closures_value_is_seen(values):
    def close_over(held):
        return lambda kwargs: (held, kwargs["x"])

    captures = Captures()
    for value in values:
        made = captures.task(close_over(value), {"x": 1})
        assert repr(made) == repr(capture_task(close_over(value), {"x": 1}))
    assert captures.written == 2


def test_list_changed_in_place_is_seen():
    held, captures = [1], Captures()
    first = captures.task(lambda kwargs: held[0] + kwargs["x"], {"x": 1}).task_module
    func = lambda kwargs: held[0] + kwargs["x"]  # noqa: E731 - twice the same object
    second = captures.task(func, {"x": 1}).task_module
    held[0] = 2
    third = captures.task(func, {"x": 1})
    assert third == capture_task(func, {"x": 1})
    assert first == second != third.task_module


def test_assigned_closure_variable_is_seen():
    held = 1

    def count(kwargs):
        return held + kwargs["x"]

    captures = Captures()
    first = captures.task(count, {"x": 1})
    held = 2
    assert captures.task(count, {"x": 1}) == capture_task(count, {"x": 1}) != first


def test_data_beside_the_source_are_those_of_now(monkeypatch):
    captures, values = Captures(), WIDE.copy()
    monkeypatch.setitem(globals(), "WIDE", values)
    first = captures.task(with_array, {"x": 1})
    values[3] = 100.0
    second = captures.task(with_array, {"x": 1})
    assert captures.written == 1
    assert second == capture_task(with_array, {"x": 1}) != first


def test_equal_list_in_anothers_place_is_the_one_that_travels(monkeypatch):
    captures, old = Captures(), [float(n) for n in range(300)]
    monkeypatch.setitem(globals(), "WIDE", old)
    captures.task(task_of_a_list, {})
    monkeypatch.setitem(globals(), "WIDE", list(old))
    old[0] = -1.0
    assert captures.task(task_of_a_list, {}) == capture_task(task_of_a_list, {})


def task_of_a_list(kwargs):
    return sum(WIDE) + len(kwargs)


def test_name_in_dead_code_is_watched(monkeypatch):
    captures = Captures()
    captures.task(with_dead_code, {"x": 1})
    monkeypatch.setitem(globals(), "helper", other_helper)
    assert captures.task(with_dead_code, {"x": 1}) == capture_task(
        with_dead_code, {"x": 1}
    )


def test_own_modules_function_is_watched(monkeypatch):
    own = types.ModuleType("own_module")
    own.compute = other_helper
    monkeypatch.setitem(sys.modules, "own_module", own)
    monkeypatch.setitem(globals(), "own", own)
    captures = Captures()
    first = captures.task(task_of_a_module, {"x": 1})
    own.compute = helper
    second = captures.task(task_of_a_module, {"x": 1})
    assert second == capture_task(task_of_a_module, {"x": 1}) != first


def task_of_a_module(kwargs):
    return own.compute(kwargs["x"])  # noqa: F821 - the test's own module


def make_rule(least):
    def is_right(value):
        return value >= least["x"][0]

    return is_right


def test_validator_made_anew_with_equal_constants_is_written_once():
    captures = Captures()
    texts = {
        captures.task(task, {"x": 1}, make_rule({"x": (1, 2)})).validator_module
        for _ in range(3)
    }
    assert (captures.written, len(texts)) == (1, 1)
    other = captures.task(task, {"x": 1}, make_rule({"x": (2, 2)}))
    assert other.validator_module not in texts


def test_function_among_arguments_is_found_by_itself():
    captures = Captures()
    for _ in range(2):
        given = {"x": 1, "f": lambda x: x + 1, "all": [Shape(), helper]}
        assert captures.task(task, given) == capture_task(task, given)
    same = {"x": 1, "f": helper}
    assert captures.task(task, same) == captures.task(task, same)
    assert captures.written == 3  # each lambda is another


def test_entry_that_is_also_an_argument_is_told_from_its_twin():
    def make():
        def entry(kwargs):
            return kwargs["f"]

        return entry

    captures, one, other = Captures(), make(), make()
    for func, given in ((one, one), (other, other), (one, other), (other, one)):
        made = captures.task(func, {"f": given})
        assert made == capture_task(func, {"f": given})


def test_function_that_calls_itself_is_written_once():
    captures = Captures()
    assert captures.task(calls_itself, {"x": 3}) == captures.task(
        calls_itself, {"x": 3}
    )
    assert captures.written == 1


@pytest.mark.parametrize(
    "func", [functools.partial(task), Shape().area], ids=["partial", "method"]
)
def test_what_cannot_be_watched_is_captured_anew(func):
    captures = Captures()
    made = [captures.calls(func, [{"x": 1}]).pack_one() for _ in range(2)]
    assert captures.written == 2
    assert made[0] == made[1] == capture_task(func, {"x": 1})


def test_sources_longest_unused_are_let_go():
    captures = Captures()
    for n in range(MOST_KEPT + 1):
        captures.task(task, {"x": 1}, make_rule({"x": (n,)}))
    captures.task(task, {"x": 1}, make_rule({"x": (1,)}))
    assert captures.written == MOST_KEPT + 1
    captures.task(task, {"x": 1}, make_rule({"x": (0,)}))
    assert captures.written == MOST_KEPT + 2


def test_threads_capture_in_turns():
    captures, made = Captures(), []
    work = [
        threading.Thread(target=lambda: made.append(captures.task(task, {"x": 1})))
        for _ in range(8)
    ]
    for one in work:
        one.start()
    for one in work:
        one.join()
    assert (captures.written, len(set(made))) == (1, 1)


def test_constants_shared_within_a_validator_are_known_again():
    captures = Captures()
    for n in range(3):
        shape = (2, n - n)
        captures.task(task, {"x": 1}, make_rule({"x": shape, "y": shape}))
    assert captures.written == 1


def test_twin_in_the_data_beside_the_source_is_the_one_that_travels():
    held = [None, *map(float, range(300))]

    def make():
        def entry(kwargs):
            return kwargs["x"] if kwargs else held[0]

        return entry

    captures = Captures()
    for twin in (make(), make()):
        held[0] = twin
        assert captures.task(twin, {"x": 1}) == capture_task(twin, {"x": 1})
