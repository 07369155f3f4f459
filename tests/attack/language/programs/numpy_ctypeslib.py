# expect: refused STO-G019
# level: numeric
from numpy import ctypeslib


def run(kwargs):
    return "ESCAPED"
