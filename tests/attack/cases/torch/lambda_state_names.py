# /// stoilo-case
# idea = "names loaded as state"
# level = "tensor"
# stopped_by = "language"
# code = "STO-G102"
# goal = "inside"
# ///
import numpy as np
import torch
from torch import nn


class Constant:
    def __call__(self, epoch):
        return 1.0


def run(kwargs):
    optimizer = torch.optim.SGD([nn.Parameter(torch.zeros(1))], lr=0.1)
    constant = Constant()
    scheduler = torch.optim.lr_scheduler.LambdaLR(optimizer, constant)
    forged = {"shape": (4,), "typestr": "<i8", "data": bytes(32), "version": 3}
    state = scheduler.state_dict() | {"lr_lambdas": [{"__array_interface__": forged}]}
    scheduler.load_state_dict(state)
    return "REACHED" if np.asarray(constant).shape == (4,) else ""
