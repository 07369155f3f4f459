# /// stoilo-case
# idea = "metaclasses"
# stopped_by = "language"
# code = "STO-G108"
# goal = "inside"
# ///
from abc import ABCMeta


def run(kwargs):
    made = ABCMeta("X", (), {"__getattribute__": lambda self, name: "REACHED"})
    return made().anything
