# /// stoilo-case
# idea = "attributes as a dictionary"
# level = "numeric"
# stopped_by = "language"
# code = "STO-G102"
# goal = "inside"
# ///
import numpy as np


class A:
    def __init__(self, **names):
        self.__dict__.update(names)
        dict.update(vars(self), names)


def run(kwargs):
    name = "__array_inter" + "face__"
    data = {"shape": (7,), "typestr": "|S1", "data": b"REACHED", "version": 3}
    made = np.asarray(A(**{name: data}))
    return b"".join(made).decode() if made.shape == (7,) else ""
