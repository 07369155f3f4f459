# expect: refused STO-G102
# level: pure
from types import SimpleNamespace


def run(kwargs):
    return "ESCAPED" if SimpleNamespace(**{"__array_interface__": {}}) else ""
