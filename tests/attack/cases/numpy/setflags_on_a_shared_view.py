# /// stoilo-case
# idea = "change what numpy reads"
# level = "numeric"
# stopped_by = "language"
# code = "STO-G102"
# goal = "inside"
# ///
import numpy as np


def run(kwargs):
    shown = np.broadcast_to(np.zeros(1), 3)
    shown.setflags(write=True)
    return "REACHED" if shown.flags.writeable else ""
