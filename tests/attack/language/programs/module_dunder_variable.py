# expect: refused STO-G010
# level: pure
__name__ = "numpy"


def run(kwargs):
    return "ESCAPED"
