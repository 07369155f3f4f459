# /// stoilo-case
# idea = "change a library class"
# stopped_by = "language"
# code = "STO-G102"
# goal = "inside"
# ///
from fractions import Fraction


def run(kwargs):
    (a, Fraction.limit_denominator), b = (1, lambda self: "REACHED"), 3
    return Fraction(1).limit_denominator()
