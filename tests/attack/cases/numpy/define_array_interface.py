# /// stoilo-case
# idea = "numpy array protocol"
# level = "numeric"
# stopped_by = "gate"
# code = "STO-G010"
# goal = "inside"
# ///
import numpy as np


class A:
    @property
    def __array_interface__(self):
        return {"shape": (1,), "typestr": "<i8", "data": (id(self), True), "version": 3}


def run(kwargs):
    return "REACHED" if np.asarray(A()).shape == (1,) else ""
