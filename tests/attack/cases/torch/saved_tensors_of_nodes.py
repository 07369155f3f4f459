# /// stoilo-case
# idea = "private state of graph nodes"
# level = "tensor"
# stopped_by = "language"
# code = "STO-G101"
# goal = "inside"
# ///
import torch


def run(kwargs):
    root = (torch.ones(2, requires_grad=True) ** 2).grad_fn
    return "REACHED" if root._saved_self is not None else ""
