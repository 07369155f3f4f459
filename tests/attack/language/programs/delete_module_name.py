# expect: refused STO-G102
# level: pure
import math


def run(kwargs):
    del math.tau
    return "ESCAPED"
