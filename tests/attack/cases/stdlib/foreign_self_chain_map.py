# /// stoilo-case
# idea = "methods of a library on a foreign self"
# stopped_by = "language"
# code = "STO-G108"
# goal = "inside"
# wider = true
# ///
from collections import ChainMap


class Arguments:
    maps = ((), {"__len__": lambda self: 3})


def run(kwargs):
    made = ChainMap.new_child(Arguments, "Made")
    return "REACHED" if len(made()) == 3 else ""
