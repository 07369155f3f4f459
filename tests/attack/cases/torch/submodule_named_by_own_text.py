# /// stoilo-case
# idea = "protocol names of submodules"
# level = "tensor"
# stopped_by = "language"
# code = "STO-G102"
# goal = "inside"
# ///
import copy

from torch import nn


class Word(str):
    def __hash__(self):
        return hash("__deepcopy__")

    def __eq__(self, other):
        return str(other) in {"__deepcopy__", "child"}


class Spy(nn.Module):
    def forward(self, ledger):
        return "REACHED" if isinstance(ledger, dict) else ""


def run(kwargs):
    parent = nn.Module()
    parent.add_module(Word("child"), Spy())
    return copy.deepcopy(parent)
