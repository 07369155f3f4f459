# /// stoilo-case
# idea = "protocol names of submodules"
# level = "tensor"
# stopped_by = "language"
# code = "STO-G102"
# goal = "inside"
# ///
import numpy as np
from torch import nn


class Forged(nn.Module, dict):
    pass


def run(kwargs):
    forged = Forged()
    forged.update(shape=(4,), typestr="<i8", data=bytes(32), version=3)
    module = nn.ModuleDict({"__array_interface__": forged})
    return "REACHED" if np.asarray(module).shape == (4,) else ""
