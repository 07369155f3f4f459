# /// stoilo-case
# idea = "two-faced mapping that a library compiles"
# stopped_by = "language"
# code = "STO-G108"
# goal = "inside"
# wider = true
# ///
from collections import UserList
from dataclasses import dataclass

CODE = "found.append(().__class__.__base__.__subclasses__())"


class Faces(dict):
    def __iter__(self):
        return iter(["good"])

    def items(self):
        return [(CODE, int)]


def run(kwargs):
    made = dataclass(
        UserList.copy(int)("X", (), {"__annotations__": Faces(good=int)}),
        init=False,
        repr=False,
    )
    x = made()
    x.found = []
    x == x
    return "REACHED" if x.found[0] else ""
