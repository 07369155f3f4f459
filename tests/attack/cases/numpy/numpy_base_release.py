# /// stoilo-case
# idea = "memory that an array stands on"
# level = "numeric"
# stopped_by = "language"
# code = "STO-G101"
# goal = "inside"
# ///
import numpy as np


def run(kwargs):
    array = np.frombuffer(bytearray(1000), dtype=np.uint8)
    array.base.release()
    others = [bytes([7]) * 990 for _ in range(2000)]
    return "REACHED" if array.max() and others else ""
