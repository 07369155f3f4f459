"""Named arrays: parameters, gradients, buffers; and the arithmetic that methods do on them.

A coordinator never changes an array in place: a version that was handed out stays as it is.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

Array: TypeAlias = NDArray[Any]
# Name → array; all methods of one run use the same names in the same order.
Tensors: TypeAlias = Mapping[str, Array]


@dataclass(frozen=True, slots=True)
class Form:
    """What an array must look like: numpy's name of its type, and its shape."""

    dtype: str
    shape: tuple[int, ...]


def forms_of(tensors: Tensors) -> dict[str, Form]:
    """Return the form of each array."""
    return {name: Form(str(a.dtype), a.shape) for name, a in tensors.items()}


def add(one: Tensors, other: Tensors, weight: float = 1.0) -> dict[str, Array]:
    """Return ``one + weight * other`` in the types of `one`."""
    return {
        name: (array + weight * other[name]).astype(array.dtype, copy=False)
        for name, array in one.items()
    }


def scale(tensors: Tensors, factor: float) -> dict[str, Array]:
    """Return ``factor * tensors``, types kept."""
    return {
        name: (factor * array).astype(array.dtype, copy=False)
        for name, array in tensors.items()
    }


def mix(one: Tensors, other: Tensors, share: float) -> dict[str, Array]:
    """Return ``share * one + (1 - share) * other``; whole numbers stay those of `one`."""
    return {
        name: (share * array + (1.0 - share) * other[name]).astype(array.dtype)
        if np.issubdtype(array.dtype, np.floating)
        else array
        for name, array in one.items()
    }


def is_finite(tensors: Tensors) -> bool:
    """Return whether every entry is a finite number."""
    return all(bool(np.isfinite(array).all()) for array in tensors.values())


_TINY = 1e-200  # squares below it may have been lost


def safe_norm(tensors: Tensors) -> float:
    """Return the Euclidean norm without overflow on the way; NaN or inf as they are."""
    with np.errstate(over="ignore", invalid="ignore"):
        # float32 squares run out of room at 1e19.
        squares = [_square(array) for array in tensors.values()]
    total = sum(sorted(squares))  # in whatever order the names are
    # The quick way is exact only where no square was lost above or below.
    if total < math.inf and all(square > _TINY or square == 0.0 for square in squares):
        return math.sqrt(total)
    return _scaled_norm(tensors)


def _scaled_norm(tensors: Tensors) -> float:
    # For entries that are too large or too small to be squared.
    largest = max((_largest(array) for array in tensors.values()), default=0.0)
    if largest == 0.0 or not math.isfinite(largest):
        return largest
    parts = [array.astype(np.float64) / largest for array in tensors.values()]
    return largest * math.sqrt(sum(sorted(map(_square, parts))))


def _square(array: Array) -> float:
    # Block by block: no copy in float64, no threads of the linear algebra library, which go
    # on spinning long after such a short sum.
    flat = array.reshape(-1)
    return float(np.einsum("i,i", flat, flat, dtype=np.float64, casting="unsafe"))


def _largest(array: Array) -> float:
    return float(np.abs(array).max()) if array.size else 0.0


def flatten(tensors: Tensors) -> NDArray[np.float64]:
    """Return all entries as one vector, names in their order."""
    parts = [array.ravel().astype(np.float64) for array in tensors.values()]
    return np.concatenate(parts) if parts else np.zeros(0)


def unflatten(vector: NDArray[np.float64], like: Tensors) -> dict[str, Array]:
    """Return the arrays that `flatten` made a vector of, in the forms of `like`."""
    found: dict[str, Array] = {}
    # In the order of names that `flatten` had.
    start = 0
    for name, array in like.items():
        part = vector[start : start + array.size]
        found[name] = part.reshape(array.shape).astype(array.dtype)
        start += array.size
    return found
