# expect: refused STO-G102
# level: pure
import math


def run(kwargs):
    math.pi = 3
    return "ESCAPED"
