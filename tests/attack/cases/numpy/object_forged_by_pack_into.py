# /// stoilo-case
# idea = "objects forged in object arrays"
# level = "numeric"
# stopped_by = "language"
# code = "STO-G200"
# goal = "inside"
# ///
import struct

import numpy as np


def run(kwargs):
    none = np.array([None], dtype=object)
    target = np.array(["text"], dtype=object)
    (address,) = struct.unpack("P", bytes(none))
    struct.pack_into("P", target, 0, address)
    return "REACHED" if target[0] is None else ""
