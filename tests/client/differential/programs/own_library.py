"""A researcher's own module, imported by the programs."""

import math as m

SCALE = 3
weights = [0.25, 0.5, 0.25]
_counter = 0


def scaled(x):
    return SCALE * x


def smooth(values):
    return [
        sum(w * v for w, v in zip(weights, values[i : i + 3]))
        for i in range(len(values) - 2)
    ]


def hypotenuse(a, b):
    return m.hypot(a, b)


def count():
    global _counter
    _counter += 1
    return _counter


class Shape:
    sides = 0

    def describe(self):
        return f"{type(self).__name__}:{self.sides}:{self.area():.3f}"


class Square(Shape):
    sides = 4

    def __init__(self, edge):
        self.edge = edge

    def area(self):
        return self.edge**2
