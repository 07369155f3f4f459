"""The default comparator."""

import time

import pytest
from hypothesis import given

from stoilo.core.codec.nodes import Ndarray
from stoilo.core.codec.skeleton import nodes_equal
from tests.support.strategies import nodes


@given(nodes, nodes)
def test_equality_is_total_reflexive_and_symmetric(left, right):
    assert nodes_equal(left, left)
    assert nodes_equal(left, right) == nodes_equal(right, left)


@pytest.mark.parametrize(
    ("left", "right"),
    [(1, 1.0), (True, 1), ([1], [1.0]), ({"a": 1, "b": 2}, {"b": 2.0, "a": 1}),
     (float("nan"), float("nan")), ((0.0,), (-0.0,))],
)  # fmt: skip
def test_values_python_calls_equal_are_equal(left, right):
    assert nodes_equal(left, right)


@pytest.mark.parametrize(
    ("left", "right"),
    [(1, 2), ([1], (1,)), ([1], [1, 1]), ("1", 1), ({"a": 1}, {"b": 1}), (None, False),
     (Ndarray("int8", (1,), b"\1"), Ndarray("int8", (1,), b"\2"))],
)  # fmt: skip
def test_different_values_are_different(left, right):
    assert not nodes_equal(left, right)


def test_deep_values_that_differ_at_the_bottom_are_compared_in_linear_time():
    def build(last):
        value = ["a"] * 20_000 + [last]
        for _ in range(60):
            value = [value, 1]
        return value

    before = time.process_time()
    assert not nodes_equal(build("x"), build("y"))
    assert time.process_time() - before < 2  # it took 4 s, and grew with the depth
