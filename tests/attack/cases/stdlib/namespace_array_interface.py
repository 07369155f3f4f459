# /// stoilo-case
# idea = "SimpleNamespace names"
# stopped_by = "language"
# code = "STO-G102"
# goal = "inside"
# ///
from types import SimpleNamespace


def run(kwargs):
    return "REACHED" if SimpleNamespace(**{"__array_interface__": {}}) else ""
