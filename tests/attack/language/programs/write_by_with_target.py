# expect: refused STO-G102
# level: pure
from contextlib import nullcontext
from fractions import Fraction


def run(kwargs):
    with nullcontext(1) as Fraction.limit_denominator:
        pass
    return "ESCAPED"
