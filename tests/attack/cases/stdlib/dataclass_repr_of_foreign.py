# /// stoilo-case
# idea = "methods that dataclasses write"
# stopped_by = "language"
# code = "STO-G102"
# goal = "inside"
# ///
from dataclasses import dataclass
from fractions import Fraction


@dataclass
class Spy:
    _numerator: int


def run(kwargs):
    return "REACHED" if "_numerator=7" in Spy.__repr__(Fraction(7, 2)) else ""
