# /// stoilo-case
# idea = "names that a module answers for"
# level = "tensor"
# stopped_by = "language"
# code = "STO-G102"
# goal = "inside"
# ///
import numpy
import torch
from torch import nn

NAME = "__array_interface__"


class Mixin:
    pass


class Net(Mixin, nn.Module):
    def forward(self, x):
        try:
            return numpy.asarray(self).shape
        except ValueError as error:  # numpy asked, and found a tensor
            return "REACHED" if "dict" in str(error) else ""


Mixin.named_parameters = lambda self, **options: [(NAME, torch.zeros(1))]


def run(kwargs):
    return torch.func.functional_call(Net(), {NAME: torch.zeros(1)}, (1,))
