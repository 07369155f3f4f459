# /// stoilo-case
# idea = "fields that come late"
# stopped_by = "language"
# code = "STO-G200"
# goal = "inside"
# ///
from abc import ABC
from dataclasses import dataclass
from random import Random


class HasBits(ABC):
    _randbelow: object


def run(kwargs):
    dataclass(slots=True)(HasBits)
    HasBits.register(Random)
    match Random(1):
        case HasBits(found):
            return "REACHED" if found(5) >= 0 else ""
