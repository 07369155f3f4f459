# /// stoilo-case
# idea = "module names that libraries look for"
# level = "tensor"
# stopped_by = "language"
# code = "STO-G102"
# goal = "inside"
# ///
import copy
from collections import OrderedDict

from torch import nn


class Spy(nn.Module):
    def forward(self, ledger):
        return "REACHED" if type(ledger) is dict else ""


def run(kwargs):
    layers = OrderedDict([("__deepcopy__", Spy())])
    return copy.deepcopy(nn.Sequential(layers))
