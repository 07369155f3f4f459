# expect: refused STO-G012
# level: numeric
import numpy as np


class A:
    @property
    def __array_interface__(self):
        return {"shape": (1,), "typestr": "<i8", "data": (id(self), True), "version": 3}


def run(kwargs):
    return "ESCAPED" if np.asarray(A()).shape == (1,) else ""
