# /// stoilo-case
# idea = "exception gives the object"
# stopped_by = "language"
# code = "STO-G101"
# goal = "inside"
# source = "CVE-2024-47532"
# ///
import math


def run(kwargs):
    module = [math][0]
    try:
        module.nothing
    except AttributeError as error:
        return "REACHED" if error.obj is math else ""
