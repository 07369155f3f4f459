# /// stoilo-case
# idea = "parameter names of distributions"
# level = "tensor"
# stopped_by = "language"
# code = "STO-G101"
# goal = "inside"
# ///
import torch
from torch import distributions

FOUND = []


class Catching(distributions.constraints.Constraint):
    def check(self, value):
        FOUND.append(value)
        return torch.tensor(True)


class Own(distributions.Distribution):
    arg_constraints = {"__reduce_ex__": Catching()}

    def __init__(self):
        super().__init__(validate_args=True)


def run(kwargs):
    Own()
    return "REACHED" if callable(FOUND[0](2)[0]) else ""
