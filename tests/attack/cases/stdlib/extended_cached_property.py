# /// stoilo-case
# idea = "trusted names of a helper"
# wider = true
# stopped_by = "language"
# code = "STO-G105"
# goal = "inside"
# ///
import copy
from contextlib import nullcontext
from functools import cached_property

names = ["x"]
seen = []


def take(ledger):
    seen.append(type(ledger) is dict)


class P(cached_property):
    _name = property(lambda self: names[0], lambda self, name: None)
    attrname = property(lambda self: names[0], lambda self, name: None)
    _func = property(lambda self: lambda instance: take)
    func = property(lambda self: lambda instance: take)
    lock = property(lambda self: nullcontext())

    def __init__(self, func):
        pass


class Box:
    x = P(take)


def run(kwargs):
    box = Box()
    names[0] = "__deepcopy__"
    box.x
    copy.deepcopy(box)
    return "REACHED" if seen == [True] else ""
