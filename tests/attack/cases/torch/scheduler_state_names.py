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


def run(kwargs):
    optimizer = torch.optim.SGD([nn.Parameter(torch.zeros(1))], lr=0.1)
    scheduler = torch.optim.lr_scheduler.StepLR(optimizer, 1)
    forged = {"shape": (4,), "typestr": "<i8", "data": bytes(32), "version": 3}
    scheduler.load_state_dict({"__array_interface__": forged})
    return "REACHED" if np.asarray(scheduler).shape == (4,) else ""
