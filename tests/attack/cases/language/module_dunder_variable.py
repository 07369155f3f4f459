# /// stoilo-case
# idea = "reserved module variables"
# stopped_by = "gate"
# code = "STO-G010"
# goal = "inside"
# ///
from fractions import Fraction

__name__ = "fractions"


class Mine:
    pass


def run(kwargs):
    return "REACHED" if repr(Mine).startswith("<class 'fractions") else ""
