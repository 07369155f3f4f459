# /// stoilo-case
# idea = "names that a module answers for"
# level = "tensor"
# stopped_by = "language"
# code = "STO-G105"
# goal = "inside"
# ///
from torch import nn


class Names:
    def _get_abs_string_index(self, index):
        return "__dict__"


class Tables(Names, nn.ParameterList):
    pass


def run(kwargs):
    return "REACHED" if "_modules" in Tables()[0] else ""
