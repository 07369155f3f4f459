# expect: refused STO-G101
# level: pure
import functools


class P(functools.cached_property):
    def rename(self):
        self._name = "__array_interface__"


class C:
    x = P(lambda self: {})


def run(kwargs):
    C.x.rename()
    return "ESCAPED"
