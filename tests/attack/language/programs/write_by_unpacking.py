# expect: refused STO-G102
# level: pure
from fractions import Fraction


def run(kwargs):
    (a, Fraction.limit_denominator), b = (1, 2), 3
    return "ESCAPED"
