# /// stoilo-case
# idea = "dataclass text"
# stopped_by = "language"
# code = "STO-G102"
# goal = "inside"
# ///
import dataclasses
from fractions import Fraction


def run(kwargs):
    dataclasses.dataclass(Fraction)
    return "REACHED"
