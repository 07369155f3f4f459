# expect: refused STO-G106
# level: pure
from enum import Enum


class Names(dict):
    def items(self):
        return [("__array_interface__", 1)]


def run(kwargs):
    Enum("E", Names(a=1))
    return "ESCAPED"
