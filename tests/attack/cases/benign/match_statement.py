# /// stoilo-case
# idea = "match statement"
# run = "task"
# level = "pure"
# ///
from dataclasses import dataclass
from enum import Enum


class Kind(Enum):
    LEAF = "leaf"
    NODE = "node"


@dataclass
class Point:
    x: float
    y: float


def describe(value):
    match value:
        case 0 | 1:
            return "small"
        case int(n) if n < 0:
            return f"negative {n}"
        case Point(x=0, y=y):
            return f"on axis {y}"
        case Point(x, y):
            return f"point {x} {y}"
        case [first, *rest]:
            return f"list {first} {len(rest)}"
        case {"kind": "circle", "r": r, **others}:
            return f"circle {r} {sorted(others)}"
        case Kind.LEAF:
            return "leaf"
        case (str() | bytes()) as text:
            return f"text {len(text)}"
        case None:
            return "none"
        case _:
            return "other"


def run(kwargs):
    values = [0, -3, Point(0, 2), Point(1, 2), [1, 2, 3], "ab", b"abc", None, 2.5]
    values += [{"kind": "circle", "r": 2, "c": 1}, Kind.LEAF, Kind.NODE, ()]
    return [describe(value) for value in values]
