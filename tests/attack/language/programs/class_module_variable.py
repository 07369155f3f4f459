# expect: refused STO-G010
# level: pure
class A:
    __module__ = "numpy"


def run(kwargs):
    return "ESCAPED"
