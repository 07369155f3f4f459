# /// stoilo-case
# idea = "two-faced mapping that a library compiles"
# stopped_by = "gate"
# code = "STO-G105"
# goal = "inside"
# wider = true
# ///
from dataclasses import dataclass

CODE = "found.append(().__class__.__base__.__subclasses__())"


class Faces(dict):
    def __iter__(self):
        return iter(["good"])

    def items(self):
        return [(CODE, int)]


def run(kwargs):
    made = dataclass(
        type("X", (), {"__annotations__": Faces(good=int)}), init=False, repr=False
    )
    x = made()
    x.found = []
    x == x
    return "REACHED" if x.found[0] else ""
