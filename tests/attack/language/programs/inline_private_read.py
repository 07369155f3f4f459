# expect: refused STO-G101
# level: pure
import random


def run(kwargs):
    r = random.Random(1)
    return "ESCAPED" if r._randbelow else ""
