class Counter:
    made = 0
    names = []

    def __init__(self, name):
        type(self).made += 1
        Counter.names.append(name)
        self.name = name


def run(kwargs):
    a, b = Counter("a"), Counter("b")
    Counter.note = "set on the class"
    del a.name
    return [Counter.made, Counter.names, b.note, hasattr(a, "name"), b.name, type(a) is Counter, a.__class__.__name__]


# abuse: STO-G102
from fractions import Fraction


def run(kwargs):
    Fraction.limit_denominator = None
    return "REACHED"
