# expect: refused STO-G102
# level: pure
import dataclasses
from fractions import Fraction


def run(kwargs):
    dataclasses.dataclass(Fraction)
    return "ESCAPED"
