"""The default comparison of two results: Python's ``==``, made total and deterministic.

Scalars compare as in Python (1 == 1.0 == True), containers element by element, arrays by
dtype, shape and bytes. NaN equals NaN: two honest copies that both computed NaN agree.
No researcher's code runs here, and no foreign class is ever asked to compare itself.
"""

from __future__ import annotations

import math
from datetime import datetime

from stoilo.core.codec.nodes import Node
from stoilo.core.codec.skeleton import encode
from stoilo.core.errors import UsageError


_NUMBERS = (bool, int, float, complex)


def nodes_equal(left: Node, right: Node) -> bool:
    """Return whether two decoded values are the same result; in time linear in them."""
    try:
        return encode(left) == encode(right) or _same(left, right)
    except UsageError:
        return False


def _same(left: Node, right: Node) -> bool:
    """Compare part by part; only parts without parts are ever encoded again."""
    if isinstance(left, _NUMBERS) and isinstance(right, _NUMBERS):
        return _numbers_equal(left, right)
    if type(left) is not type(right):
        return False
    if isinstance(left, (list, tuple)):
        return len(left) == len(right) and all(map(_same, left, right))
    if isinstance(left, dict):
        return left.keys() == right.keys() and all(
            _same(value, right[key]) for key, value in left.items()
        )
    if isinstance(left, (str, bytes, set, frozenset, datetime)):
        return bool(left == right)
    return encode(left) == encode(right)


def _numbers_equal(left: complex, right: complex) -> bool:
    if isinstance(left, float) and isinstance(right, float):
        return left == right or (math.isnan(left) and math.isnan(right))
    return left == right or encode(left) == encode(right)  # complex with NaN parts
