# /// stoilo-case
# idea = "change a library class"
# stopped_by = "language"
# code = "STO-G102"
# goal = "inside"
# ///
from fractions import Fraction


class Add:
    def __radd__(self, other):
        return lambda number: "REACHED"


def run(kwargs):
    Fraction.limit_denominator += Add()
    return Fraction(1).limit_denominator()
