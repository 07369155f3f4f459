# /// stoilo-case
# idea = "self that is somebody else"
# stopped_by = "language"
# code = "STO-G101"
# goal = "inside"
# ///
from random import Random


def make(base):
    class Thief(base):
        def draw(self):
            return self._randbelow

    return Thief


class Plain:
    _randbelow = 1


def run(kwargs):
    make(Plain)().draw()
    return "REACHED" if make(Random)(1).draw()(1) == 0 else ""
