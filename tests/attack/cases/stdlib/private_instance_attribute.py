# /// stoilo-case
# idea = "private attribute of a library object"
# stopped_by = "language"
# code = "STO-G101"
# goal = "inside"
# ///
from pprint import PrettyPrinter


class P(PrettyPrinter):
    def leak(self):
        return self._stream


def run(kwargs):
    return "REACHED" if P().leak() else ""
