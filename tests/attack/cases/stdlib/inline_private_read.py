# /// stoilo-case
# idea = "private attribute of a library object"
# stopped_by = "language"
# code = "STO-G101"
# goal = "inside"
# ///
import random


def run(kwargs):
    r = random.Random(1)
    return "REACHED" if r._randbelow else ""
