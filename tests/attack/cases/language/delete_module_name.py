# /// stoilo-case
# idea = "change a module"
# stopped_by = "language"
# code = "STO-G102"
# goal = "inside"
# ///
import math


def run(kwargs):
    del math.tau
    return "" if hasattr(math, "tau") else "REACHED"
