# /// stoilo-case
# idea = "keywords that become attributes"
# stopped_by = "language"
# goal = "inside"
# ///
from types import SimpleNamespace


def run(kwargs):
    space = SimpleNamespace(**{"__match_" + "args__": "REACHED"})
    return repr(space)
