# /// stoilo-case
# idea = "numpy raw memory"
# level = "numeric"
# stopped_by = "language"
# code = "STO-G200"
# goal = "inside"
# ///
from numpy.typing import NDArray


def run(kwargs):
    return "REACHED" if NDArray[int]((4,)).size else ""
