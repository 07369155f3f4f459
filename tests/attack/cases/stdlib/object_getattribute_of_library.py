# /// stoilo-case
# idea = "reading past every getter"
# stopped_by = "language"
# code = "STO-G101"
# goal = "inside"
# ///
import random


def run(kwargs):
    return "REACHED" if object.__getattribute__(random.Random(1), "_randbelow") else ""
