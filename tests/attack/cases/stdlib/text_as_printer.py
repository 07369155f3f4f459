# /// stoilo-case
# idea = "text that formats for a library"
# wider = true
# stopped_by = "language"
# code = "STO-G108"
# goal = "inside"
# ///
from json import dumps
from pprint import PrettyPrinter


def run(kwargs):
    found = PrettyPrinter.isrecursive("--{0.__globals__[__name__]}", dumps)
    return "REACHED" if found == "j" else ""
