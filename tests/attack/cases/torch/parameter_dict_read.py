# /// stoilo-case
# idea = "attribute names as keys"
# level = "tensor"
# stopped_by = "language"
# code = "STO-G102"
# goal = "inside"
# ///
from torch import nn


def run(kwargs):
    return "REACHED" if "_modules" in nn.ParameterDict()["__dict__"] else ""
