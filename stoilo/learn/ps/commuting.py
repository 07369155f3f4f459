"""The update functions that every parameter server knows.

The gate judges each one's source as it stands here. Each takes a value and a change, gives
back the new value and leaves both as they are. ``float`` stands for arrays too.
"""

import numpy as np


def add(value: float, change: float) -> float:
    """Return the sum; of arrays, entry by entry."""
    return value + change


def largest(value: float, change: float) -> float:
    """Return the larger; of arrays, entry by entry."""
    found: float = np.maximum(value, change)
    return found


def count(value: dict[str, float], change: dict[str, float]) -> dict[str, float]:
    """Return the counts of both together."""
    found = dict(value)
    for name, number in change.items():
        found[name] = found.get(name, 0) + number
    return found


def merge(value: dict[str, float], change: dict[str, float]) -> dict[str, float]:
    """Return the names of both; where both have one, the larger number."""
    found = dict(value)
    for name, number in change.items():
        found[name] = max(found.get(name, number), number)
    return found
