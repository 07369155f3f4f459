# /// stoilo-case
# idea = "enum internals"
# stopped_by = "language"
# code = "STO-G105"
# goal = "inside"
# ///
from enum import Enum


def run(kwargs):
    return "REACHED" if Enum("E", {"__array_interface__": {}}) is not None else ""
