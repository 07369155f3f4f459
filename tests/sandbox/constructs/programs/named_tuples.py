from collections import namedtuple
from typing import NamedTuple

Pair = namedtuple("Pair", "a b", defaults=[2])


class Point(NamedTuple):
    x: int
    y: int = 5

    def total(self):
        return self.x + self.y


def run(kwargs):
    pair, point = Pair(1), Point(3)
    a, b = pair
    return [list(pair), repr(pair._replace(a=9)), pair._asdict(), list(Pair._make("xy")), point.total(), point.x, point[1], point._fields, a + b, point == (3, 5)]


# abuse: STO-G101
import random


def run(kwargs):
    return "REACHED" if getattr(random.Random(1), "_rand" + "below") else "no"
