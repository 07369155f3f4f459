# expect: refused STO-G010
# level: pure
import math as _stoilo_import


def run(kwargs):
    return "ESCAPED"
