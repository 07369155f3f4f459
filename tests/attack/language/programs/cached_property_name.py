# expect: refused STO-G102
# level: pure
from functools import cached_property


class C:
    x = cached_property(lambda self: {})


def run(kwargs):
    C.x.attrname = "__array_interface__"
    C().x
    return "ESCAPED"
