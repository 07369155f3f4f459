# /// stoilo-case
# idea = "shape changed during an assignment"
# level = "numeric"
# wider = true
# stopped_by = "language"
# code = "STO-G102"
# goal = "inside"
# ///
import numpy as np

around = np.zeros(16)
part = around[:4]


class Value:
    def __float__(self):
        part.shape = (2, 2)
        return 1.0


def run(kwargs):
    part[...] = [0.0, Value(), 1.0, 1.0]
    return "REACHED" if around[4:].any() else ""
