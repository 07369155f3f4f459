# /// stoilo-case
# idea = "metaclasses"
# stopped_by = "language"
# code = "STO-G105"
# goal = "inside"
# ///
from abc import ABC


class A(ABC):
    pass


def run(kwargs):
    made = type(A)("X", (), {"__match_args__": ("__globals__",)})
    made.register(type(run))
    match run:
        case made(names):
            return "REACHED" if names else ""
