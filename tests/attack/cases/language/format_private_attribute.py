# /// stoilo-case
# idea = "format with own objects"
# stopped_by = "language"
# code = "STO-G101"
# goal = "inside"
# ///
from random import Random


def run(kwargs):
    text = "{0._randbelow}".format(Random(1))
    return "REACHED" if "Random" in text else ""
