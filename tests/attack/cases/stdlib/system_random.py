# /// stoilo-case
# idea = "entropy"
# stopped_by = "gate"
# code = "STO-P040"
# goal = "inside"
# ///
from random import SystemRandom


def run(kwargs):
    return "REACHED" if SystemRandom().random() else ""
