# expect: refused STO-G019
# level: pure
from random import SystemRandom


def run(kwargs):
    return "ESCAPED" if SystemRandom().random() else ""
