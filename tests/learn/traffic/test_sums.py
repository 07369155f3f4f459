"""Exact sums: any order, the same bits; floats as the control."""

from __future__ import annotations

import functools
import operator

import numpy as np
import pytest

from stoilo.core.errors import UsageError
from stoilo.learn.traffic.sums import ExactSum, Scale


def draw(seed: int) -> list[np.ndarray]:
    return list(np.random.default_rng(seed).normal(size=(29, 50)))


@pytest.mark.parametrize("seed", range(5))
def test_any_order_gives_the_same_bits(seed: int):
    vectors, scale = draw(seed), Scale.fit(10.0, 29)
    sums = [ExactSum.encode(v, 3, scale) for v in vectors]
    there = functools.reduce(operator.add, sums)
    back = functools.reduce(operator.add, reversed(sums))
    assert there.samples == back.samples == 87
    assert np.array_equal(there.values, back.values)
    assert np.allclose(there.decode(scale), sum(vectors), rtol=0, atol=1e-14)


def test_floats_do_not():
    vectors = draw(0)
    assert not np.array_equal(sum(vectors), sum(reversed(vectors)))


@pytest.mark.parametrize("parts", [1, 2, 3, 29, 1024])
@pytest.mark.parametrize("bound", [1.0, 0.7, 1e-30, 1e30])
def test_the_largest_sum_fits(parts: int, bound: float):
    scale = Scale.fit(bound, parts)
    one = ExactSum.encode(np.array([bound, -bound]), 1, scale)
    whole = [parts * int(value) for value in one.values]
    assert max(map(abs, whole)) < 2**63
    assert one.decode(scale) == pytest.approx([bound, -bound])


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf, 1.5])
def test_what_is_beyond_the_bound_is_refused(value: float):
    with pytest.raises(UsageError, match="STO-T040"):
        ExactSum.encode(np.array([value]), 1, Scale.fit(1.0, 2))


@pytest.mark.parametrize(
    ("bound", "parts"), [(0.0, 1), (np.inf, 1), (np.nan, 1), (1.0, 0)]
)
def test_no_scale_without_a_bound(bound: float, parts: int):
    with pytest.raises(UsageError, match="STO-T040"):
        Scale.fit(bound, parts)
