# /// stoilo-case
# idea = "dataclass text"
# stopped_by = "language"
# code = "STO-G105"
# goal = "inside"
# first_python = "3.11.7"
# ///
from dataclasses import dataclass
from typing import TypedDict


def run(kwargs):
    code = "found.append(().__class__.__base__.__subclasses__())"
    made = dataclass(TypedDict("X", {code: int}), init=False, repr=False)
    x = dict.__new__(made)
    x.found = []
    x == x
    return "REACHED" if x.found[0] else ""
