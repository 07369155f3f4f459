# /// stoilo-case
# idea = "format strings by library helpers"
# stopped_by = "language"
# code = "STO-G101"
# goal = "inside"
# ///
from operator import methodcaller

SECRET = "REACHED"


def run(kwargs):
    return methodcaller("format", run)("{0.__globals__[SECRET]}")
