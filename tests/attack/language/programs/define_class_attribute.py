# expect: refused STO-G010
# level: pure
class A:
    __class__ = int


def run(kwargs):
    return "ESCAPED"
