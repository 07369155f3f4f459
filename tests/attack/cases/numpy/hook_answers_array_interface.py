# /// stoilo-case
# idea = "hooks that answer for refused names"
# level = "numeric"
# stopped_by = "language"
# goal = "inside"
# ///
import numpy as np


class A:
    def __getattr__(self, name):
        if name != "__array_interface__":
            raise AttributeError(name)
        return {"shape": (7,), "typestr": "|S1", "data": b"REACHED", "version": 3}


def run(kwargs):
    made = np.asarray(A())
    return b"".join(made).decode() if made.shape == (7,) else ""
