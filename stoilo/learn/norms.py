"""Norms of hostile numbers: no overflow, no warning, NaN and infinity stay what they are."""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

from stoilo.learn.tensors import Array, Tensors, is_finite
from stoilo.learn.work import Reply

__all__ = ["is_sound", "safe_norm"]

_TINY = 1e-200


def is_sound(reply: Reply) -> bool:
    """Return whether all its numbers are finite and it has samples."""
    numbers = (reply.loss_sum, *reply.numbers.values())
    return (
        reply.samples > 0
        and all(math.isfinite(number) for number in numbers)
        and is_finite(reply.buffers)
        and math.isfinite(safe_norm(reply.tensors))
    )


def safe_norm(tensors: Tensors) -> float:
    """Return the Euclidean norm without overflow on the way; NaN or inf as they are."""
    with np.errstate(over="ignore", invalid="ignore"):
        squares = [float(np.vdot(a, a)) for a in map(_doubles, tensors.values())]
    total = sum(squares)
    if total < math.inf and all(square > _TINY or square == 0.0 for square in squares):
        return math.sqrt(total)
    return _scaled_norm(tensors)


def _scaled_norm(tensors: Tensors) -> float:
    """Return the norm of entries that are too large or too small to be squared."""
    largest = max((_largest(array) for array in tensors.values()), default=0.0)
    if largest == 0.0 or not math.isfinite(largest):
        return largest
    parts = [_doubles(array) / largest for array in tensors.values()]
    return largest * math.sqrt(sum(float(np.vdot(part, part)) for part in parts))


def _doubles(array: Array) -> NDArray[np.float64]:
    return array.astype(np.float64, copy=False)


def _largest(array: Array) -> float:
    return float(np.abs(array).max()) if array.size else 0.0
