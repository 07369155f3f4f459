# /// stoilo-case
# idea = "methods made by dataclass on foreign objects"
# stopped_by = "language"
# code = "STO-G102"
# goal = "inside"
# ///
from dataclasses import dataclass
from fractions import Fraction


@dataclass
class Patch:
    limit_denominator: object


def run(kwargs):
    Patch.__init__(Fraction, lambda number: "REACHED")
    return Fraction(1).limit_denominator()
