# /// stoilo-case
# idea = "trusted names of a helper"
# wider = true
# stopped_by = "language"
# code = "STO-G105"
# goal = "inside"
# ///
from functools import singledispatchmethod

seen = []


def method(self, value):
    return None


class Spy:
    def dispatch(self, cls):
        seen.append(cls)
        return method


class Names:
    _dispatcher = property(lambda self: Spy())
    dispatcher = property(lambda self: Spy())
    _function = property(lambda self: method)
    func = property(lambda self: method)


class C(Names, singledispatchmethod):
    def __init__(self, *values):
        pass


class Box:
    method = C(method)


def run(kwargs):
    Box().method(Box)
    [kind] = seen
    return "REACHED" if kind("Made", (), {"x": 1})().x else ""
