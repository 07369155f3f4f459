# /// stoilo-case
# idea = "cached_property name"
# stopped_by = "language"
# code = "STO-G102"
# goal = "inside"
# ///
from functools import cached_property


class C:
    x = cached_property(lambda self: {})


def run(kwargs):
    C.x.attrname = "__array_interface__"
    C().x
    return "REACHED"
