# /// stoilo-case
# idea = "operator getters"
# stopped_by = "language"
# code = "STO-G101"
# goal = "inside"
# ///
from operator import methodcaller


def run(kwargs):
    return "REACHED" if methodcaller("__sizeof__")(run) else ""
