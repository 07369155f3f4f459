# /// stoilo-case
# idea = "storing past every setter"
# stopped_by = "language"
# code = "STO-G102"
# goal = "inside"
# ///
from dataclasses import dataclass


@dataclass(frozen=True)
class Point:
    x: int = 0


class Loose(Point):
    pass


class Other(Point):
    word = "REACHED"


def run(kwargs):
    loose = Loose()
    Point.__setattr__(loose, "__cla" + "ss__", Other)
    return loose.word
