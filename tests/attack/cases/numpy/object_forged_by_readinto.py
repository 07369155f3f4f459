# /// stoilo-case
# idea = "objects forged in object arrays"
# level = "numeric"
# stopped_by = "language"
# code = "STO-G200"
# goal = "inside"
# ///
import io

import numpy as np


def run(kwargs):
    target = np.array(["text"], dtype=object)
    io.BytesIO(b"".join([np.array([None], dtype=object)])).readinto(target)
    return "REACHED" if target[0] is None else ""
