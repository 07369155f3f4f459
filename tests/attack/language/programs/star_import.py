# expect: refused STO-G016
# level: pure
from math import *


def run(kwargs):
    return "ESCAPED"
