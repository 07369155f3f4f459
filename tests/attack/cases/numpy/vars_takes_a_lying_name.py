# /// stoilo-case
# idea = "attributes as a dictionary"
# level = "numeric"
# stopped_by = "language"
# code = "STO-G102"
# goal = "inside"
# ///
import numpy as np


class Name(str):
    def startswith(self, *prefix):
        return False


class A:
    pass


def run(kwargs):
    a = A()
    data = {"shape": (7,), "typestr": "|S1", "data": b"REACHED", "version": 3}
    vars(a).setdefault(Name("__array_interface__"), data)
    made = np.asarray(a)
    return b"".join(made).decode() if made.shape == (7,) else ""
