# /// stoilo-case
# idea = "private methods of a base"
# level = "tensor"
# stopped_by = "language"
# code = "STO-G102"
# goal = "inside"
# ///
from torch import nn


class Mixin:
    pass


class Names(Mixin, nn.ParameterList):
    pass


def run(kwargs):
    Mixin._get_abs_string_index = lambda self, index: "__dict__"
    return "REACHED" if "_modules" in Names()[0] else ""
