# /// stoilo-case
# idea = "attributes as a dictionary"
# stopped_by = "language"
# code = "STO-G101"
# goal = "inside"
# ///
from fractions import Fraction


class Half(Fraction):
    pass


def run(kwargs):
    half = Half(1, 2)
    vars(half)["_randbelow"] = "REACHED"
    return vars(half)["_randbelow"]
