class Celsius:
    def __init__(self, degrees):
        self.degrees = degrees

    @property
    def kelvin(self):
        return self._degrees + 273.15

    @property
    def degrees(self):
        return self._degrees

    @degrees.setter
    def degrees(self, value):
        if value < -273.15:
            raise ValueError(value)
        self._degrees = value

    @degrees.deleter
    def degrees(self):
        self._degrees = 0


class Circle:
    def __init__(self, r):
        self.r = r

    from functools import cached_property

    @cached_property
    def area(self):
        self.computed = getattr(self, "computed", 0) + 1
        return 3 * self.r**2


def run(kwargs):
    c, circle = Celsius(20), Circle(2)
    c.degrees += 1.5
    found = [c.kelvin, c.degrees, circle.area, circle.area, circle.computed]
    del c.degrees
    try:
        c.degrees = -300
    except ValueError as error:
        return [*found, c.degrees, error.args]


# abuse: STO-G101
import statistics


class Own:
    @property
    def peek(self):
        return self._mu


def run(kwargs):
    return "REACHED" if Own.peek.fget(statistics.NormalDist(1, 2)) == 1 else "no"
