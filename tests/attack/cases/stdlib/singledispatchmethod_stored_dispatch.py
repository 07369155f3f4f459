# /// stoilo-case
# idea = "attributes that a helper takes over"
# wider = true
# stopped_by = "language"
# goal = "inside"
# ///
from functools import singledispatchmethod

seen = []


def method(self, value):
    return None


def remember(cls):
    seen.append(cls)
    return method


method.dispatch = remember


class Box:
    method = singledispatchmethod(method)


def run(kwargs):
    Box().method(Box)
    [kind] = seen
    return "REACHED" if kind("Made", (), {"x": 1})().x else ""
