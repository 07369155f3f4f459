# /// stoilo-case
# idea = "special methods that torch trusts"
# level = "tensor"
# stopped_by = "gate"
# code = "STO-G010"
# goal = "inside"
# ///
import torch


class Answering:
    @classmethod
    def __torch_function__(cls, function, types, args=(), kwargs=None):
        return function


def run(kwargs):
    return "REACHED" if callable(torch.add(Answering(), 1)) else ""
