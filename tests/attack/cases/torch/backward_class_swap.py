# /// stoilo-case
# idea = "private class of a function"
# level = "tensor"
# stopped_by = "language"
# code = "STO-G101"
# goal = "inside"
# ///
import torch


class Twice(torch.autograd.Function):
    @staticmethod
    def forward(ctx, value):
        return value * 2

    @staticmethod
    def backward(ctx, gradient):
        return gradient * 2


class Forged(Twice):
    @staticmethod
    def backward(ctx, gradient):
        return gradient * 99


def run(kwargs):
    Twice._backward_cls = Forged._backward_cls
    value = torch.ones(1, requires_grad=True)
    Twice.apply(value).backward()
    return "REACHED" if value.grad.item() == 99 else ""
