# expect: refused STO-G101
# level: pure
import math


def run(kwargs):
    try:
        math.nothing
    except AttributeError as error:
        return "ESCAPED" if error.obj else ""
