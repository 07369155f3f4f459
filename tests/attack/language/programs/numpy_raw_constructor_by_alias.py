# expect: user_error STO-G200
# level: numeric
import numpy as np


def run(kwargs):
    return "ESCAPED" if np.ndarray[int]((4,)).size else ""
