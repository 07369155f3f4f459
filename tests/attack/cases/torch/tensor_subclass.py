# /// stoilo-case
# idea = "special methods that torch trusts"
# level = "tensor"
# stopped_by = "language"
# code = "STO-G105"
# goal = "inside"
# ///
import torch


class Own(torch.Tensor):
    pass


def run(kwargs):
    return "REACHED" if type(torch.zeros(1).as_subclass(Own)) is Own else ""
