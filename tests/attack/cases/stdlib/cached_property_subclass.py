# /// stoilo-case
# idea = "cached_property name"
# stopped_by = "language"
# code = "STO-G105"
# goal = "inside"
# ///
import functools


class P(functools.cached_property):
    def rename(self):
        self._name = "__array_interface__"


class C:
    x = P(lambda self: {})


def run(kwargs):
    C.x.rename()
    return "REACHED"
