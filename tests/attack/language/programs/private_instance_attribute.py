# expect: refused STO-G101
# level: pure
from pprint import PrettyPrinter


class P(PrettyPrinter):
    def leak(self):
        return self._stream


def run(kwargs):
    return "ESCAPED" if P().leak() else ""
