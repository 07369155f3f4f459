# /// stoilo-case
# idea = "slots"
# stopped_by = "gate"
# code = "STO-G010"
# goal = "inside"
# ///
names = ["__weakref__"]


class A:
    __slots__ = names


def run(kwargs):
    return "REACHED" if hasattr(A, "__weakref__") else ""
