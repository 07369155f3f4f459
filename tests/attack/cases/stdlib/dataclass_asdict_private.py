# /// stoilo-case
# idea = "dataclass fields of a library base"
# stopped_by = "language"
# code = "STO-G105"
# goal = "inside"
# ///
from dataclasses import asdict, dataclass
from random import Random


@dataclass(init=False)
class R(Random):
    _randbelow: object


def run(kwargs):
    [(name, method)] = asdict(R(1), dict_factory=list)
    return "REACHED" if method(1) == 0 else ""
