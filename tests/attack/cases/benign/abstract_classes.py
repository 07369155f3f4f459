# /// stoilo-case
# idea = "abstract classes"
# run = "task"
# level = "pure"
# ///
import math
from abc import ABC, abstractmethod
from collections.abc import Mapping, MutableSequence


class Shape(ABC):
    @property
    @abstractmethod
    def area(self):
        """Area."""

    def describe(self):
        return f"{type(self).__name__} {self.area:.3f}"


class Circle(Shape):
    def __init__(self, r):
        self._r = r

    @property
    def area(self):
        return math.pi * self._r**2

    @property
    def r(self):
        return self._r

    @r.setter
    def r(self, value):
        if value < 0:
            raise ValueError("negative")
        self._r = value


class Frozen(Mapping):
    def __init__(self, data):
        self._data = dict(data)

    def __getitem__(self, key):
        return self._data[key]

    def __iter__(self):
        return iter(self._data)

    def __len__(self):
        return len(self._data)


class Ring(MutableSequence):
    def __init__(self, items):
        self._items = list(items)

    def __getitem__(self, i):
        return self._items[i % len(self._items)]

    def __setitem__(self, i, value):
        self._items[i % len(self._items)] = value

    def __delitem__(self, i):
        del self._items[i]

    def __len__(self):
        return len(self._items)

    def insert(self, i, value):
        self._items.insert(i, value)


def run(kwargs):
    circle = Circle(1)
    circle.r = 2
    circle.r += 1
    log = []
    for action in (lambda: Shape(), lambda: setattr(circle, "r", -1)):
        try:
            action()
        except (TypeError, ValueError) as error:
            log.append(type(error).__name__)
    frozen = Frozen({"a": 1})
    ring = Ring([1, 2, 3])
    ring.append(4)
    return [
        circle.describe(),
        log,
        frozen.get("b", 0),
        dict(frozen),
        ring[5],
        list(reversed(ring)),
        4 in ring,
    ]
