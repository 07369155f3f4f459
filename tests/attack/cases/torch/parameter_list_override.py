# /// stoilo-case
# idea = "private methods of a base"
# level = "tensor"
# stopped_by = "language"
# code = "STO-G105"
# goal = "inside"
# ///
from torch import nn


class Names(nn.ParameterList):
    def _get_abs_string_index(self, index):
        return "__dict__"


def run(kwargs):
    return "REACHED" if "_modules" in Names()[0] else ""
