# expect: refused STO-G010
# level: pure
class stoilo:
    __x = 1


def run(kwargs):
    return "ESCAPED"
