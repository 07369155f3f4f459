# /// stoilo-case
# idea = "change a library class"
# stopped_by = "language"
# code = "STO-G102"
# goal = "inside"
# ///
from contextlib import nullcontext
from fractions import Fraction


def run(kwargs):
    with nullcontext(lambda self: "REACHED") as Fraction.limit_denominator:
        return Fraction(1).limit_denominator()
