# expect: refused STO-G106
# level: pure
from enum import Enum


def run(kwargs):
    return "ESCAPED" if Enum("E", {"__array_interface__": {}}) is not None else ""
