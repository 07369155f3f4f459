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


class C(singledispatchmethod):
    def __init__(self, *values):
        pass


C._dispatcher = C.dispatcher = Spy()
C._function = C.func = method


class Box:
    method = C(method)


def run(kwargs):
    Box().method(Box)
    [kind] = seen
    return "REACHED" if kind("Made", (), {"x": 1})().x else ""
