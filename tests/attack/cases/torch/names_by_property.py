# /// stoilo-case
# idea = "names that a module answers for"
# level = "tensor"
# stopped_by = "language"
# code = "STO-G105"
# goal = "inside"
# ///
from torch import nn


class Names(nn.ParameterList):
    _get_abs_string_index = property(lambda self: lambda index: "__dict__")


def run(kwargs):
    return "REACHED" if "_modules" in Names()[0] else ""
