# /// stoilo-case
# idea = "numpy dtype fields"
# level = "numeric"
# stopped_by = "language"
# goal = "inside"
# ///
import numpy as np


class Grab:
    """Compared with a read-only view, it is handed the dictionary behind it."""

    def __eq__(self, other):
        other["a"] = (np.dtype("<i8"), 1 << 10)
        return True


def run(kwargs):
    kind = np.dtype([("a", "<i8")])
    kind.fields == Grab()
    before = np.zeros(1, kind)["a"] + 1
    return "REACHED" if kind.fields["a"][1] == 1 << 10 and before.size else ""
