# /// stoilo-case
# idea = "keywords that become attributes"
# stopped_by = "gate"
# code = "STO-G010"
# goal = "inside"
# ///
from types import SimpleNamespace


def run(kwargs):
    space = SimpleNamespace(__array_interface__="REACHED")
    return repr(space)
