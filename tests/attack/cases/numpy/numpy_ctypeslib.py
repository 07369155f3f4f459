# /// stoilo-case
# idea = "numpy ctypes"
# level = "numeric"
# stopped_by = "gate"
# code = "STO-P040"
# goal = "inside"
# ///
from numpy import ctypeslib


def run(kwargs):
    return "REACHED"
