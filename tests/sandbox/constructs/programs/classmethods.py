class Point:
    scale = 2

    def __init__(self, x):
        self.x = x

    @classmethod
    def scaled(cls, x):
        return cls(x * cls.scale)

    @staticmethod
    def zero():
        return 0


class Far(Point):
    scale = 100


def run(kwargs):
    return [Point.scaled(3).x, Far.scaled(3).x, Far(1).scaled(2).x, Point.zero(), type(Far.scaled(1)) is Far]


# abuse: STO-G102
from fractions import Fraction


class Patch:
    @classmethod
    def write(cls, target):
        target.from_float = None


def run(kwargs):
    Patch.write(Fraction)
    return "REACHED"
