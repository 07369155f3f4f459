# expect: refused STO-G019
# level: pure
from operator import attrgetter


def run(kwargs):
    return "ESCAPED" if attrgetter("__globals__")(run) else ""
