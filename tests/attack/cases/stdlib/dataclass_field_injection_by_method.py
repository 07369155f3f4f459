# /// stoilo-case
# idea = "dataclass text"
# stopped_by = "language"
# code = "STO-G102"
# goal = "inside"
# ///
from dataclasses import dataclass, fields


@dataclass
class A:
    x: int = 0


class Writer:
    def put(self, value):
        self.name = value


def run(kwargs):
    Writer.put(fields(A)[0], "y=1")
    return "REACHED"
