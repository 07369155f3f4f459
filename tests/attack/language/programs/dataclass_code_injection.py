# expect: refused STO-G106
# level: pure
# seen in: 3.11.7
from dataclasses import dataclass
from typing import TypedDict


def run(kwargs):
    code = "found.append(().__class__.__base__.__subclasses__())"
    made = dataclass(TypedDict("X", {code: int}), init=False, repr=False)
    x = dict.__new__(made)
    x.found = []
    x == x
    return "ESCAPED" if x.found[0] else ""
