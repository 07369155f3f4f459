# expect: refused STO-G104
# level: pure
from abc import ABC


class A(ABC):
    pass


def run(kwargs):
    return "ESCAPED" if type(A)("X", (), {}) is not None else ""
