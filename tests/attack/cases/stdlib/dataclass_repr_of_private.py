# /// stoilo-case
# idea = "methods made by dataclass on foreign objects"
# stopped_by = "language"
# code = "STO-G102"
# goal = "inside"
# ///
from dataclasses import dataclass
from random import Random


@dataclass
class Show:
    _randbelow: object


def run(kwargs):
    text = Show.__repr__(Random(1))
    return "REACHED" if "bound method" in text else ""
