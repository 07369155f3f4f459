# /// stoilo-case
# idea = "storing past every setter"
# stopped_by = "language"
# code = "STO-G101"
# goal = "inside"
# ///
from fractions import Fraction


def run(kwargs):
    half = Fraction(1, 2)
    object.__setattr__(half, "_numerator", "REACHED")
    return half.numerator
