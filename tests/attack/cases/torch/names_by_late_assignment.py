# /// stoilo-case
# idea = "names that a module answers for"
# level = "tensor"
# stopped_by = "language"
# code = "STO-G102"
# goal = "inside"
# ///
from torch import nn


class Names(nn.ParameterList):
    pass


Names._get_abs_string_index = lambda self, index: "__dict__"


def run(kwargs):
    return "REACHED" if "_modules" in Names()[0] else ""
