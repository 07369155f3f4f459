from __future__ import annotations

from typing import Optional

LIMIT: int = 3


class Point:
    x: "float" = 1.5
    names: list[str]


def run(kwargs: dict[str, int], *rest: Nothing, flag: Optional[bool] = None) -> "never read":
    total: int = 2
    later: Undefined
    point = Point()
    point.x: float = 4.0
    d = {}
    d["k"]: int = LIMIT
    return [total, point.x, d, flag, rest]


# abuse: STO-G101
class Point:
    x: [].__class__.__base__.__subclasses__ = 1


def run(kwargs):
    return "REACHED"
