# /// stoilo-case
# idea = "format strings by library helpers"
# stopped_by = "language"
# code = "STO-G101"
# goal = "inside"
# ///
from collections import UserString

SECRET = "REACHED"


def run(kwargs):
    return str(UserString("{0.__globals__[SECRET]}").format(run))
