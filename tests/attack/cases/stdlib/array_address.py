# /// stoilo-case
# idea = "addresses shown by arrays"
# stopped_by = "language"
# code = "STO-G101"
# goal = "inside"
# ///
from array import array


def run(kwargs):
    address, _ = getattr(array("d", [1.0]), "buffer_" + "info")()
    return "REACHED" if address else ""
