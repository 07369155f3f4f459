# /// stoilo-case
# idea = "methods that dataclasses write"
# stopped_by = "language"
# code = "STO-G102"
# goal = "inside"
# ///
import math
from dataclasses import dataclass


@dataclass
class Circle:
    pi: float


def run(kwargs):
    Circle.__init__(math, 4.0)
    return "REACHED" if math.pi == 4 else ""
