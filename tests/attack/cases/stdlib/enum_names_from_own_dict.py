# /// stoilo-case
# idea = "enum internals"
# stopped_by = "language"
# code = "STO-G105"
# goal = "inside"
# ///
from enum import Enum


class Names(dict):
    def items(self):
        return [("__array_interface__", 1)]


def run(kwargs):
    Enum("E", Names(a=1))
    return "REACHED"
