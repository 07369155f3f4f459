# /// stoilo-case
# idea = "slots"
# stopped_by = "gate"
# code = "STO-G010"
# goal = "inside"
# ///
class A:
    __slots__ = ("__dict__", "x")


def run(kwargs):
    a = A()
    a.y = "REACHED"
    return a.y
