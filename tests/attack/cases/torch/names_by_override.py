# /// stoilo-case
# idea = "names that a module answers for"
# level = "tensor"
# stopped_by = "language"
# code = "STO-G105"
# goal = "inside"
# ///
import numpy
import torch
from torch import nn

NAME = "__array_interface__"


class Net(nn.Module):
    def named_parameters(self, *values, **options):
        return [(NAME, torch.zeros(1))]

    def forward(self, x):
        try:
            return numpy.asarray(self).shape
        except ValueError as error:  # numpy asked, and found a tensor
            return "REACHED" if "dict" in str(error) else ""


def run(kwargs):
    return torch.func.functional_call(Net(), {NAME: torch.zeros(1)}, (1,))
