# /// stoilo-case
# idea = "module names that libraries look for"
# level = "tensor"
# stopped_by = "language"
# code = "STO-G102"
# goal = "inside"
# ///
import copy

from torch import nn


class Spy(nn.Module):
    def forward(self, ledger):
        return "REACHED" if type(ledger) is dict else ""


def run(kwargs):
    model = nn.Sequential()
    model.add_module("__deepcopy__", Spy())
    return copy.deepcopy(model)
