# expect: refused STO-G010
# level: pure
class A:
    __slots__ = ("__dict__", "x")


def run(kwargs):
    return "ESCAPED"
