# /// stoilo-case
# idea = "change a library class"
# stopped_by = "language"
# code = "STO-G102"
# goal = "inside"
# ///
from fractions import Fraction


def run(kwargs):
    for Fraction.limit_denominator in [lambda self: "REACHED"]:
        return Fraction(1).limit_denominator()
