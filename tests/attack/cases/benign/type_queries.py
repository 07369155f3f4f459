# /// stoilo-case
# idea = "type queries"
# run = "task"
# level = "pure"
# ///
import numbers
from typing import Sequence


class A:
    pass


class B(A):
    pass


def run(kwargs):
    values = [1, 2.0, True, "s", None, [1], (1,), {1: 2}, A(), B(), A, len]
    return [
        [type(v).__name__ for v in values],
        type(1) is int,
        type(B()) == B,
        type(A) is type,
        isinstance(A, type),
        isinstance(3, type),
        type(B())().__class__ is B,
        [isinstance(v, (int, float)) for v in values],
        [isinstance(v, numbers.Number) for v in values],
        [isinstance(v, Sequence) for v in values],
        issubclass(bool, int),
        {type(v) for v in (1, 2)} == {int},
    ]
