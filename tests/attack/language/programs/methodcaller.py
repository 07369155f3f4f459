# expect: refused STO-G019
# level: pure
from operator import methodcaller


def run(kwargs):
    return "ESCAPED" if methodcaller("__sizeof__")(run) else ""
