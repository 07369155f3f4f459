# /// stoilo-case
# idea = "initialise a library object again"
# stopped_by = "language"
# code = "STO-G105"
# goal = "inside"
# ///
from struct import Struct


class S(Struct):
    pass


def run(kwargs):
    layout = S("b")
    items = layout.iter_unpack(b"x" * 8)
    next(items)
    layout.__init__("400s")
    return "REACHED" if len(next(items)[0]) == 400 else ""
