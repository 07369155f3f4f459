"""Norms of named arrays: exact at both ends, and without a copy of what they measure."""

from __future__ import annotations

import math
import tracemalloc

import numpy as np
import pytest

from stoilo.learn.core.tensors import safe_norm

LARGE = np.full(1 << 20, 0.5, np.float32)


def peak_bytes(work: object) -> int:
    """Return the most that a call holds beside what was there before, bytes."""
    assert callable(work)
    tracemalloc.start()
    try:
        work()
        return tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize("kind", ["float16", "float32", "float64", "int64"])
def test_norm_of_any_kind_is_that_of_its_doubles(kind: str) -> None:
    array = np.arange(-50, 50).reshape(4, 25).astype(kind)
    parts = {"a": array, "b": array.T, "c": np.zeros((0, 3), kind)}
    wanted = math.sqrt(2.0 * sum(float(one) ** 2 for one in array.ravel()))
    assert safe_norm(parts) == pytest.approx(wanted, rel=1e-14)


@pytest.mark.parametrize("size", [1e-200, 1e-30, 1e19, 1e200])
def test_norm_of_entries_whose_squares_are_lost_is_found(size: float) -> None:
    assert safe_norm({"a": np.array([3.0, 4.0]) * size}) == pytest.approx(5.0 * size)


def test_norm_of_large_array_copies_none_of_it() -> None:
    assert safe_norm({"a": LARGE}) == 512.0
    assert peak_bytes(lambda: safe_norm({"a": LARGE})) < LARGE.nbytes // 4
    # the control: what it did before, a copy in doubles
    assert peak_bytes(lambda: LARGE.astype(np.float64)) >= 2 * LARGE.nbytes
