# /// stoilo-case
# idea = "dataclass fields of a library base"
# stopped_by = "language"
# code = "STO-G105"
# goal = "inside"
# ///
from dataclasses import dataclass, replace
from random import Random


@dataclass(init=False)
class R(Random):
    _randbelow: object

    def __init__(self, **fields):
        self.got = fields


def run(kwargs):
    return "REACHED" if replace(R()).got["_randbelow"](1) == 0 else ""
