# expect: refused STO-G102
# level: pure
from fractions import Fraction


def run(kwargs):
    for Fraction.limit_denominator in [None]:
        pass
    return "ESCAPED"
