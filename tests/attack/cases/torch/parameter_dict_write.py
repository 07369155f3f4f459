# /// stoilo-case
# idea = "attribute names as keys"
# level = "tensor"
# stopped_by = "language"
# code = "STO-G102"
# goal = "inside"
# ///
import numpy as np
from torch import nn


def run(kwargs):
    table = nn.ParameterDict()
    forged = {"shape": (4,), "typestr": "<i8", "data": bytes(32), "version": 3}
    table["__array_interface__"] = forged
    return "REACHED" if np.asarray(table).shape == (4,) else ""
