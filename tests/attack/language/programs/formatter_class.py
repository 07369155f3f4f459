# expect: refused STO-G019
# level: pure
from string import Formatter


def run(kwargs):
    return "ESCAPED" if Formatter().format("{0.__globals__}", run) else ""
