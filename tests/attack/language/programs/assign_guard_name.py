# expect: refused STO-G010
# level: pure
_stoilo_getattr = getattr


def run(kwargs):
    return "ESCAPED"
