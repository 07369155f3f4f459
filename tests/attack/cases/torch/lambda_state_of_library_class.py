# /// stoilo-case
# idea = "state of library objects"
# level = "tensor"
# stopped_by = "language"
# code = "STO-G101"
# goal = "inside"
# ///
import torch
from torch import nn


class Grabbing(torch.optim.lr_scheduler.LambdaLR):
    def grab(self, value):
        self.lr_lambdas = [value]
        return self.state_dict()["lr_lambdas"][0]


def run(kwargs):
    optimizer = torch.optim.SGD([nn.Parameter(torch.zeros(1))], lr=0.1)
    methods = Grabbing(optimizer, lambda epoch: 1.0).grab(str)
    text = methods["format"]("{0.__globals__}", torch.atleast_1d)
    return "REACHED" if "__builtins__" in text else ""
