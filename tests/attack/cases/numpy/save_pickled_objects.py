# /// stoilo-case
# idea = "arrays in files in memory"
# level = "numeric"
# stopped_by = "language"
# code = "STO-G102"
# goal = "inside"
# ///
import io

import numpy as np


def run(kwargs):
    file = io.BytesIO()
    np.savez(file, a=np.array(["REACHED", None], dtype=object), allow_pickle=True)
    return "REACHED" if b"REACHED" in file.getvalue() else ""
