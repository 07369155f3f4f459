# /// stoilo-case
# idea = "special methods that libraries trust"
# stopped_by = "language"
# code = "STO-G101"
# goal = "inside"
# ///
from functools import cached_property


class Own:
    pass


def run(kwargs):
    made = cached_property(lambda self: "REACHED")
    made.__set_name__(Own, "__array_interface__")
    return made.__get__(Own(), Own)
