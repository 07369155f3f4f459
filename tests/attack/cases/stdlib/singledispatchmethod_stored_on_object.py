# /// stoilo-case
# idea = "attributes that a helper takes over"
# wider = true
# stopped_by = "language"
# goal = "inside"
# ///
from functools import singledispatchmethod


class Spy:
    def __init__(self):
        self.seen = []
        self.dispatch = self.remember

    def __call__(self, value):
        return None

    def remember(self, cls):
        self.seen.append(cls)
        return self


def run(kwargs):
    spy = Spy()

    class Box:
        method = singledispatchmethod(spy)

    try:
        Box().method(Box)
    except AttributeError:
        """Once it has seen the class, there is nothing to bind."""
    [kind] = spy.seen
    return "REACHED" if kind("Made", (), {"x": 1})().x else ""
