# expect: refused STO-G102
# level: pure
from fractions import Fraction


def run(kwargs):
    Fraction.limit_denominator = None
    return "ESCAPED"
