# expect: refused STO-G102
# level: pure
from types import SimpleNamespace


class Key(str):
    def startswith(self, *prefixes):
        return False

    def endswith(self, *suffixes):
        return False


def run(kwargs):
    space = SimpleNamespace(**{Key("__array_interface__"): 1})
    return "ESCAPED" if "__array_interface__" in repr(space) else ""
