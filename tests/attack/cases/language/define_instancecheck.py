# /// stoilo-case
# idea = "special methods that libraries trust"
# stopped_by = "gate"
# code = "STO-G010"
# goal = "inside"
# ///
from abc import ABC


class Anything(ABC):
    @classmethod
    def __subclasshook__(cls, kind):
        return True


def run(kwargs):
    return "REACHED" if isinstance(run, Anything) else ""
