# /// stoilo-case
# idea = "SimpleNamespace names"
# stopped_by = "language"
# code = "STO-G102"
# goal = "inside"
# ///
from types import SimpleNamespace


class Key(str):
    def startswith(self, *prefixes):
        return False

    def endswith(self, *suffixes):
        return False


def run(kwargs):
    space = SimpleNamespace(**{Key("__array_interface__"): 1})
    return "REACHED" if "__array_interface__" in repr(space) else ""
