# /// stoilo-case
# idea = "change a module"
# stopped_by = "language"
# code = "STO-G102"
# goal = "inside"
# ///
import json


def run(kwargs):
    delattr(json, "dumps")
    return "" if hasattr(json, "dumps") else "REACHED"
