# /// stoilo-case
# idea = "special methods that the language relies on"
# stopped_by = "gate"
# code = "STO-G010"
# goal = "inside"
# ///
class A:
    __class__ = int


def run(kwargs):
    return "REACHED" if isinstance(A(), int) else ""
